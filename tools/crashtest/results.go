package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// results is a file with one outcome per line. An experiment's last line counts. After an
// interruption, a test continues after the last complete line.
type results struct {
	mu      sync.Mutex
	log     *jsonlines.Log[Record]
	records []Record
	at      map[Key]int // index in records
}

func openResults(path vfs.Path) (*results, error) {
	r := &results{at: map[Key]int{}}
	size := int64(0)
	for e, err := range jsonlines.Read[Record](path) {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, jsonlines.ErrTorn) {
			break
		}
		if err != nil {
			return nil, err
		}
		r.put(e.Value)
		size = e.End
	}
	var err error
	r.log, err = jsonlines.Continue[Record](path, size)
	return r, err
}

func (r *results) has(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, done := r.at[k]
	return done
}

func (r *results) add(record Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(record)
	return r.log.Append(record)
}

// put stores a record. It replaces that of the same experiment, which was repeated.
func (r *results) put(record Record) {
	if i, again := r.at[record.Key]; again {
		r.records[i] = record
		return
	}
	r.at[record.Key] = len(r.records)
	r.records = append(r.records, record)
}

// identity returns a hash of the cage executable and the plugins beside it.
func identity(cage string) (string, error) {
	plugins, err := filepath.Glob(filepath.Join(filepath.Dir(cage), "plugins", "*"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, path := range append([]string{cage}, plugins...) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// summarize prints the number of experiments and the kinds of kills in them.
func summarize(w io.Writer, records []Record) {
	kills, torn, alone, failures := 0, 0, 0, 0
	for _, r := range records {
		if len(r.Failures) > 0 {
			failures++
		}
		for _, k := range r.Kills {
			kills++
			if k.Torn {
				torn++
			}
			if !k.All {
				alone++
			}
		}
	}
	fmt.Fprintf(w,
		"%d experiments with %d kills, %d of the caller alone, %d in the middle of a write: %d failed\n",
		len(records), kills, alone, torn, failures)
}
