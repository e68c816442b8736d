"""From a build to a verdict without a hand: requests, where they come from, and who carries them out."""
