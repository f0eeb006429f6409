package campaign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// results is the file of outcomes, one line for each experiment. A campaign that was
// stopped goes on after the last whole line.
type results struct {
	mu      sync.Mutex
	file    *os.File
	records []Record
}

func openResults(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	r := &results{}
	for line := range bytes.Lines(text) {
		var record Record
		if err := json.Unmarshal(line, &record); err != nil {
			return nil, err
		}
		r.records = append(r.records, record)
	}
	if r.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err := r.file.Truncate(int64(len(text))); err != nil {
		return nil, err
	}
	_, err = r.file.Seek(0, io.SeekEnd)
	return r, err
}

func (r *results) has(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.records, func(record Record) bool { return record.Key == k })
}

func (r *results) add(record Record) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
	_, err = r.file.Write(append(text, '\n'))
	return err
}

// identity names a build of cage: the hash of the executable and of the plugins beside it.
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
