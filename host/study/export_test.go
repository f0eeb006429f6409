package study

import "path/filepath"

// FailedPath is the account of a cell's failure.
func FailedPath(dir string) string { return filepath.Join(dir, failedFile) }
