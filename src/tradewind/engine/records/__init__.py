"""Studies as files of records: written, taken in again, and interpreted anew."""
