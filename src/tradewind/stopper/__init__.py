"""Policies that give up running trials which have no prospects, by what they report while they run."""
