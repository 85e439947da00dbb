"""Studies whose trials you run yourself: what is handed out and told, and several workers on one study."""
