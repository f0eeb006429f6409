package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Write writes the file with one line for each cell, so that changes are readable in a
// diff.
func (f *File) Write(path string) error {
	var b bytes.Buffer
	head, err := json.MarshalIndent(struct {
		Study   string   `json:"study"`
		From    string   `json:"from"`
		Sources []Source `json:"sources"`
	}{f.Study, f.From, f.Sources}, "", "  ")
	if err != nil {
		return err
	}
	b.Write(bytes.TrimSuffix(head, []byte("\n}")))
	b.WriteString(",\n  \"cells\": [")
	for i, c := range f.Cells {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(line)
	}
	b.WriteString("\n  ]\n}\n")
	return atomicfile.WriteBytes(vfs.At(path), b.Bytes())
}

// Read reads a file of kept results. Errors name the file.
func Read(path string) (*File, error) {
	text, err := vfs.At(path).ReadFile()
	if err != nil {
		return nil, err
	}
	f, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: no results that 'cage study keep' wrote: %w", path, err)
	}
	return f, nil
}

func decode(text []byte) (*File, error) {
	f := &File{}
	if err := plainjson.UnmarshalStrict(text, f); err != nil {
		return nil, err
	}
	if f.Study == "" {
		return nil, errors.New("it names no study")
	}
	seen := map[string]bool{}
	for i, c := range f.Cells {
		switch {
		case c.ID == "":
			return nil, fmt.Errorf("cell %d has no ID", i)
		case seen[configuration(c.ID)]:
			return nil, fmt.Errorf("the cell %s stands there twice", c.ID)
		case c.Source < 0 || c.Source >= len(f.Sources):
			return nil, fmt.Errorf("the cell %s has the source %d, and there are %d", c.ID, c.Source, len(f.Sources))
		}
		seen[configuration(c.ID)] = true
	}
	return f, nil
}

// ReadFor reads the file of kept results of a study.
func ReadFor(s *study.Study, path string) (*File, error) {
	file, err := Read(path)
	if err != nil {
		return nil, err
	}
	if file.Study != s.Name {
		return nil, fmt.Errorf("%s has results of the study %s, and %s is %s", path, file.Study, s.File, s.Name)
	}
	return file, nil
}

// Update writes the file at path, or adds to it. Where it has results of cells that the study does
// not name any more, forget drops them.
func Update(path string, s *study.Study, results []study.Result, forget bool, revision string, now time.Time) (*File, error) {
	before, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if before != nil && before.Study != s.Name {
		return nil, fmt.Errorf("%s has results of the study %s, and %s is %s: give another --out", path, before.Study, s.File, s.Name)
	}
	if unknown := before.Unknown(s); len(unknown) > 0 && !forget {
		return nil, fmt.Errorf("%s has results of %d cells that %s does not name any more, such as %s: give --forget to drop them, or another --out", path, len(unknown), s.File, unknown[0])
	}
	file, err := Take(s, results, before, revision, now)
	if err != nil {
		return nil, err
	}
	if len(file.Cells) == 0 {
		return nil, fmt.Errorf("no cell of %s is done: there is nothing to keep", s.File)
	}
	to, err := atomicfile.Target(path)
	if err != nil {
		return nil, err
	}
	return file, file.Write(to.Name)
}
