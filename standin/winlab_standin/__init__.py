"""Stand-in Windows media: an ISO with Microsoft's layout whose payload behaves, towards winlab, as Windows would."""
