package fileheader

import (
	"bufio"
	"encoding/hex"
	"errors"
	"hash"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// Writer writes a file, leaving room at its beginning for the header block, which is
// written last. Nothing appears under a name before [Writer.CommitAs], and then all of it
// does.
type Writer struct {
	file *atomicfile.File
	out  *bufio.Writer
	sum  hash.Hash
}

// Create begins a file that is to appear at path, or under another name in the same
// directory.
func Create(path vfs.Path) (*Writer, error) {
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{file, bufio.NewWriterSize(file, 1<<20), digest.New()}
	if _, err := w.out.Write(make([]byte, Size)); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// Write appends to the content of the file after the block.
func (w *Writer) Write(data []byte) (int, error) {
	w.sum.Write(data)
	return w.out.Write(data)
}

// SHA256 returns the hash of what was written, without the block.
func (w *Writer) SHA256() string { return hex.EncodeToString(w.sum.Sum(nil)) }

// Finish writes the block, and closes the file once it is on disk; CommitAs or Abort must
// still follow.
func (w *Writer) Finish(block []byte) error {
	if err := w.out.Flush(); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(block, 0); err != nil {
		return err
	}
	return w.file.Close()
}

// CommitAs gives a finished file its name, and returns when that is durable.
func (w *Writer) CommitAs(path vfs.Path) error { return w.file.CommitAs(path) }

// Abort removes what was written. After CommitAs it does nothing, so it can be deferred.
func (w *Writer) Abort() error { return w.file.Abort() }
