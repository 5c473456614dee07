"""Requests to addresses that users name: made with care, by whichever part has to make them."""
