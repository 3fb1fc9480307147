module winlab.invalid/pause

go 1.21
