package data

import (
	"fmt"
	"io"
	"os"

	"github.com/cage-qat/cage/internal/regular"
)

// document is a stretch of a file with plain text. There may be many millions, so that it
// takes 16 bytes: start and length have 48 bits each, the file's number the other 32.
type document struct{ startFile, lengthFile uint64 }

func newDocument(file int, start, end int64) document {
	f := uint64(file)
	return document{uint64(start)<<16 | f&0xffff, uint64(end-start)<<16 | f>>16&0xffff}
}

func (d document) file() int     { return int(d.startFile&0xffff | d.lengthFile&0xffff<<16) }
func (d document) start() int64  { return int64(d.startFile >> 16) }
func (d document) length() int64 { return int64(d.lengthFile >> 16) }

// textFile is where the text of documents lies: a file of the user, or a spool.
type textFile struct {
	path  string
	spool *spool // nil: a file of the user
}

// textReader reads stretches of files, and keeps the last one open.
type textReader struct {
	files []textFile
	open  int // the number of the open file
	file  *os.File
}

func newTextReader(files []textFile) *textReader { return &textReader{files: files, open: -1} }

// readAt fills p with what file has from offset at.
func (r *textReader) readAt(p []byte, file int, at int64) error {
	from, err := r.reader(file)
	if err != nil {
		return err
	}
	if _, err := from.ReadAt(p, at); err != nil {
		return fmt.Errorf("%s changed while it was being read: %w", r.files[file].path, err)
	}
	return nil
}

func (r *textReader) reader(file int) (io.ReaderAt, error) {
	if spool := r.files[file].spool; spool != nil {
		return spool.file, nil
	}
	if r.open == file {
		return r.file, nil
	}
	r.close()
	f, err := regular.Open(r.files[file].path)
	if err == nil {
		r.file, r.open = f, file
	}
	return f, err
}

// close closes the file that is open.
func (r *textReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file, r.open = nil, -1
	}
}
