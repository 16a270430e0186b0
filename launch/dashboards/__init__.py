"""TensorBoard's server, and the first page that the server shows."""
