package kept

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Write writes the file with one line for each cell, so that changes are readable in a
// diff.
func (f *File) Write(path string) error {
	text, err := f.encode()
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(path), text)
}

func (f *File) encode() ([]byte, error) {
	var b bytes.Buffer
	head, err := json.MarshalIndent(struct {
		Study   string   `json:"study"`
		From    string   `json:"from"`
		Sources []Source `json:"sources"`
	}{f.Study, f.From, f.Sources}, "", "  ")
	if err != nil {
		return nil, err
	}
	b.Write(bytes.TrimSuffix(head, []byte("\n}")))
	b.WriteString(",\n  \"cells\": [")
	for i, c := range f.Cells {
		line, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(line)
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes(), nil
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
