"""Floor 4: tables, plots and exports of what a search found."""
