"""An audit of the product's figures: its own simulators and its own arithmetic, with the product as what is tested."""
