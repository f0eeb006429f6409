package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/fileheader"
	"github.com/cage-qat/cage/internal/vfs"
)

// Writer writes a token file as a stream of documents. Each is preceded by the
// tokenizer's begin token and followed by its end token, if the tokenizer has them. If
// both are the same token, as with GPT-2, it is written once, before the document, and
// thus also ends the previous document. Nothing appears under the file's name before
// [Writer.Commit], and then all of it does.
type Writer struct {
	header  Header
	path    vfs.Path
	file    *fileheader.Writer
	scratch []byte
}

// NewWriter begins the token file at path, for ids of the tokenizer that info describes.
func NewWriter(path vfs.Path, info tokenizer.Info) (*Writer, error) {
	if info.VocabSize < 1 {
		return nil, fmt.Errorf("token file %s: vocabulary of %d tokens", path, info.VocabSize)
	}
	file, err := fileheader.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{header: Header{TokenBytes: tokenBytes(info.VocabSize), Tokenizer: info}, path: path, file: file}, nil
}

// WriteDocument appends one document. If an id is outside the vocabulary, the error is a
// [*tokenizer.RangeError] and nothing is written.
func (w *Writer) WriteDocument(ids []int32) error {
	if err := w.check(ids); err != nil {
		return err
	}
	return errors.Join(w.Begin(), w.Append(ids), w.End())
}

// Begin begins a document that is written in parts: Append and End follow.
func (w *Writer) Begin() error {
	if bos := w.header.Tokenizer.BOS; bos != tokenizer.NoToken {
		return w.write([]int32{bos})
	}
	return nil
}

// Append appends part of a document.
func (w *Writer) Append(ids []int32) error {
	if err := w.check(ids); err != nil {
		return err
	}
	return w.write(ids)
}

// End ends a document.
func (w *Writer) End() error {
	w.header.Documents++
	if eos := w.header.Tokenizer.EOS; eos != tokenizer.NoToken && eos != w.header.Tokenizer.BOS {
		return w.write([]int32{eos})
	}
	return nil
}

func (w *Writer) check(ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= w.header.Tokenizer.VocabSize {
			return fmt.Errorf("token file %s: %w", w.path, &tokenizer.RangeError{ID: int64(id), VocabSize: w.header.Tokenizer.VocabSize})
		}
	}
	return nil
}

func (w *Writer) write(ids []int32) error {
	buf := w.scratch[:0]
	for _, id := range ids {
		buf = w.appendID(buf, id)
	}
	w.scratch = buf
	if _, err := w.file.Write(buf); err != nil {
		return fmt.Errorf("token file %s: %w", w.path, err)
	}
	w.header.Tokens += int64(len(ids))
	return nil
}

func (w *Writer) appendID(buf []byte, id int32) []byte {
	if w.header.TokenBytes == 2 {
		return binary.LittleEndian.AppendUint16(buf, uint16(id))
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(id))
}

// Finish writes the header, and closes the file when it is on disk; Commit or Abort must still follow.
func (w *Writer) Finish() error {
	if w.header.SHA256 != "" {
		return nil
	}
	w.header.SHA256 = w.file.SHA256()
	block, err := w.header.encode()
	if err == nil {
		err = w.file.Finish(block)
	}
	if err != nil {
		return fmt.Errorf("token file %s: %w", w.path, err)
	}
	return nil
}

// Tokens returns the number of ids written so far.
func (w *Writer) Tokens() int64 { return w.header.Tokens }

// Commit writes the header, moves the file to its path, and returns when it is on disk.
func (w *Writer) Commit() (Header, error) { return w.CommitAs(w.path) }

// CommitAs is [Writer.Commit] under another name in the same directory.
func (w *Writer) CommitAs(path vfs.Path) (Header, error) {
	if err := w.Finish(); err != nil {
		return Header{}, err
	}
	if err := w.file.CommitAs(path); err != nil {
		return Header{}, fmt.Errorf("token file %s: %w", w.path, err)
	}
	return w.header, nil
}

// Abort removes what was written. After Commit it does nothing, so it can be deferred.
func (w *Writer) Abort() error { return w.file.Abort() }
