"""The worker: claims attempts from a `WorkSource`, executes them, kills them, and reports what came of them."""
