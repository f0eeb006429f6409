package data

import (
	"bufio"
	"errors"
	"fmt"
	"sync"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// document is a range of a text file. It is small, because a dataset can have millions of them.
type document struct {
	start, length int64
	file          int32 // index among the text files
}

type textFile struct {
	path  string
	spool *spool // nil: an input file
}

type textReader struct {
	files []textFile
	open  int32 // index of the open file
	file  vfs.File
}

func (r *textReader) read(d document) (text string, err error) {
	from, p := r.files[d.file], make([]byte, d.length)
	if from.spool != nil {
		_, err = from.spool.file.ReadAt(p, d.start)
	} else {
		if r.file == nil || r.open != d.file {
			r.close()
			if r.file, err = vfs.At(from.path).Open(); err != nil {
				return "", err
			}
			r.open = d.file
		}
		_, err = r.file.ReadAt(p, d.start)
	}
	if err != nil {
		return "", fmt.Errorf("%s changed while it was being read: %w", from.path, err)
	}
	return string(p), nil
}

func (r *textReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// spoolName is the name of the training file: spools are named like its temporary files, so that
// the next preparation removes the remains of a killed one.
var spoolName = dataset.Texts.Train

// spool is a temporary file for the text of rows and of compressed files. It is unlinked while it
// is open, so that it disappears when the process ends, even by a crash.
type spool struct {
	number int32 // index among the text files
	file   vfs.File
	out    *bufio.Writer
	size   int64
}

func (s *spool) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	s.size += int64(n)
	if err != nil {
		err = fmt.Errorf("temporary file %s: %w", s.file.Name(), err)
	}
	return n, err
}

func (s *spool) flush() error {
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("temporary file %s: %w", s.file.Name(), err)
	}
	return nil
}

// spools is a pool of spools, each of which is written by one goroutine at a time.
type spools struct {
	mu   sync.Mutex
	dir  vfs.Path
	all  []*spool
	free []*spool
	add  func(*spool) int32 // returns the index of the new text file
}

func (s *spools) get() (*spool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free) - 1; n >= 0 {
		free := s.free[n]
		s.free = s.free[:n]
		return free, nil
	}
	file, path, err := atomicfile.Temporary(s.dir.Join(spoolName), 0o600)
	if err != nil {
		return nil, err
	}
	if err := path.Remove(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	fresh := &spool{file: file, out: bufio.NewWriterSize(file, 1<<18)}
	fresh.number = s.add(fresh)
	s.all = append(s.all, fresh)
	return fresh, nil
}

func (s *spools) put(used *spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, used)
}

// close closes all spools, which releases the disk space.
func (s *spools) close() error {
	return errors.Join(lists.Map(s.all, func(one *spool) error { return one.file.Close() })...)
}
