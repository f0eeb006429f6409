package export_test

import "github.com/cage-qat/cage/internal/vfs"

func at(dir string) vfs.Path { return vfs.At(dir) }
