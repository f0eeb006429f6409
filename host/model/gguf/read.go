package gguf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cage-qat/cage/internal/vfs"
)

// ReadFile reads back a file that [WriteFile] wrote with these entries and tensors, and calls each
// with the decoded numbers of each tensor. It is an error if the header differs, or if the file is
// not complete.
func ReadFile(path vfs.Path, entries []Entry, tensors []Tensor,
	each func(name string, values []float32) error) (err error) {
	want, err := header(entries, tensors)
	if err != nil {
		return err
	}
	f, err := path.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := bufio.NewReaderSize(f, 1<<20)
	head := make([]byte, len(want))
	if _, err := io.ReadFull(r, head); err != nil || !bytes.Equal(head, want) {
		return errors.Join(fmt.Errorf("%s: the header is not the one that was written", path), err)
	}
	for _, t := range tensors {
		size, err := t.Type.size(t.Shape)
		if err != nil {
			return err
		}
		data := make([]byte, align(size, alignment))
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", path, t.Name, err)
		}
		values, err := Decode(t.Type, data[:size])
		if err == nil {
			err = each(t.Name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %q: %w", path, t.Name, err)
		}
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.Join(fmt.Errorf("%s: there are bytes after the last tensor", path), err)
	}
	return nil
}
