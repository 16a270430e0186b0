"""An audit of the product's figures: its own simulators and its own arithmetic, the product is what is tested."""
