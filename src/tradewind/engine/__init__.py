"""Floor 3: the engine turns a problem into trials, money and an answer."""
