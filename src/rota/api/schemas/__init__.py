"""What requests and answers look like; the OpenAPI document is made from these."""
