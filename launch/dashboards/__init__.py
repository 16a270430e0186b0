"""TensorBoard's server, and the page that its address opens on."""
