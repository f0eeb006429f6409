package data

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Writer writes a token file as a stream of documents. Nothing appears under
// the file's name before [Writer.Commit], and then all of it does.
type Writer struct {
	header  Header
	path    vfs.Path
	file    *atomicfile.File
	out     *bufio.Writer
	sum     hash.Hash
	scratch []byte
}

// NewWriter begins the token file at path for ids of the tokenizer info.
func NewWriter(path vfs.Path, info tokenizer.Info) (*Writer, error) {
	if info.VocabSize < 1 {
		return nil, fmt.Errorf("token file %s: vocabulary of %d tokens", path, info.VocabSize)
	}
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		header: Header{TokenBytes: tokenBytes(info.VocabSize), Tokenizer: info},
		path:   path,
		file:   file,
		out:    bufio.NewWriterSize(file, 1<<20),
		sum:    sha256.New(),
	}
	if _, err := w.out.Write(make([]byte, headerSize)); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// WriteDocument appends one document: the beginning-of-document token, where
// the tokenizer has one, and ids. An id outside the vocabulary is a
// [*tokenizer.RangeError]; nothing is written then.
func (w *Writer) WriteDocument(ids []int32) error {
	info := &w.header.Tokenizer
	buf := w.scratch[:0]
	if info.BOS != tokenizer.NoBOS {
		buf = w.appendID(buf, info.BOS)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= info.VocabSize {
			return fmt.Errorf("token file %s: %w", w.path, &tokenizer.RangeError{ID: int64(id), VocabSize: info.VocabSize})
		}
		buf = w.appendID(buf, id)
	}
	w.scratch = buf
	w.sum.Write(buf)
	if _, err := w.out.Write(buf); err != nil {
		return fmt.Errorf("token file %s: %w", w.path, err)
	}
	w.header.Tokens += int64(len(buf) / w.header.TokenBytes)
	w.header.Documents++
	return nil
}

func (w *Writer) appendID(buf []byte, id int32) []byte {
	if w.header.TokenBytes == 2 {
		return binary.LittleEndian.AppendUint16(buf, uint16(id))
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(id))
}

// Commit writes the header, puts the file in its place, and returns when it
// is on disk.
func (w *Writer) Commit() (Header, error) {
	w.header.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	block, err := w.header.encode()
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		_, err = w.file.WriteAt(block, 0)
	}
	if err == nil {
		err = w.file.Commit()
	}
	if err != nil {
		return Header{}, fmt.Errorf("token file %s: %w", w.path, err)
	}
	return w.header, nil
}

// Abort removes what was written. After Commit it does nothing, so that it can
// be deferred.
func (w *Writer) Abort() error { return w.file.Abort() }
