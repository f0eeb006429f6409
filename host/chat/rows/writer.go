package rows

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Writer writes a chat file. Nothing appears under the file's name before [Writer.Commit],
// and then all of it does. It keeps 8 bytes per document in memory.
type Writer struct {
	header  Header
	path    vfs.Path
	file    *atomicfile.File
	out     *bufio.Writer
	sum     hash.Hash
	index   []byte
	scratch []byte
}

// NewWriter begins the chat file at path.
func NewWriter(path vfs.Path, origin Origin) (*Writer, error) {
	if origin.Tokenizer.VocabSize < 1 {
		return nil, fmt.Errorf("chat file %s: vocabulary of %d tokens", path, origin.Tokenizer.VocabSize)
	}
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{header: Header{Origin: origin}, path: path, file: file, out: bufio.NewWriterSize(file, 1<<20), sum: sha256.New()}
	if _, err := w.out.Write(make([]byte, headerSize)); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write appends a document: ids, and for each whether it carries loss. One token behind
// the first must. An id outside the vocabulary is a [*tokenizer.RangeError]; nothing is
// written then.
func (w *Writer) Write(ids []int32, loss []bool) error {
	first := 0
	if len(ids) == len(loss) && len(ids) > 1 {
		first = 1 + slices.Index(loss[1:], true)
	}
	switch {
	case len(ids) != len(loss):
		return fmt.Errorf("chat file %s: a document of %d tokens with %d marks", w.path, len(ids), len(loss))
	case first == 0:
		return fmt.Errorf("chat file %s: a document of %d tokens without one to learn", w.path, len(ids))
	case len(ids) > math.MaxInt32 || w.header.Documents == math.MaxUint32:
		return fmt.Errorf("chat file %s: too many documents, or too long ones", w.path)
	}
	buf, learned := w.scratch[:0], int64(0)
	for i, id := range ids {
		if id < 0 || int(id) >= w.header.Tokenizer.VocabSize {
			return fmt.Errorf("chat file %s: %w", w.path, &tokenizer.RangeError{ID: int64(id), VocabSize: w.header.Tokenizer.VocabSize})
		}
		word := uint32(id)
		if loss[i] {
			word |= lossBit
			learned++
		}
		buf = binary.LittleEndian.AppendUint32(buf, word)
	}
	w.scratch = buf
	w.sum.Write(buf)
	if _, err := w.out.Write(buf); err != nil {
		return fmt.Errorf("chat file %s: %w", w.path, err)
	}
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(len(ids)))
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(first))
	w.header.Documents++
	w.header.Tokens += int64(len(ids))
	w.header.Learned += learned
	w.header.Longest = max(w.header.Longest, int64(len(ids)))
	return nil
}

// Commit writes the rest, puts the file in its place, and returns when it is on disk.
func (w *Writer) Commit() (Header, error) {
	w.sum.Write(w.index)
	w.header.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	block, err := w.header.encode()
	if err == nil {
		_, err = w.out.Write(w.index)
	}
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
		return Header{}, errors.Join(fmt.Errorf("chat file %s: %w", w.path, err), w.Abort())
	}
	return w.header, nil
}

// Abort removes what was written. After Commit it does nothing, so that it can be deferred.
func (w *Writer) Abort() error { return w.file.Abort() }
