"""TensorBoard's server, and the first page that its address shows."""
