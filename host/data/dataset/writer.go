package dataset

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// Writer writes a token file document by document. The file appears under its name only when it is
// complete, at [Writer.Commit].
//
// Each text is preceded by the tokenizer's BOS token and followed by its EOS token, if it has them.
// If both are the same token, as with GPT-2, it is written once, before the text, and thus also
// ends the previous one. Conversations get only the tokens of their template. For them the writer
// keeps one bit per token and 8 bytes per document in memory.
type Writer struct {
	header Header
	path   vfs.Path
	file   *atomicfile.File
	out    *bufio.Writer
	sum    hash.Hash
	buf    []byte // of ids not yet written to the file

	mask, index []byte // of conversations
}

// NewWriter creates the token file at path.
func NewWriter(path vfs.Path, origin Origin) (*Writer, error) {
	if origin.Tokenizer.VocabSize < 1 {
		return nil, fmt.Errorf("token file %s: vocabulary of %d tokens, want at least 1",
			path, origin.Tokenizer.VocabSize)
	}
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	header := Header{TokenBytes: tokenBytes(origin.Tokenizer.VocabSize), Origin: origin}
	w := &Writer{header: header, path: path, file: file,
		out: bufio.NewWriterSize(file, 1<<20), sum: digest.New()}
	if _, err := w.out.Write(make([]byte, headerSize)); err != nil {
		return nil, errors.Join(w.failed(err), w.Abort())
	}
	return w, nil
}

func (w *Writer) failed(err error) error { return fmt.Errorf("token file %s: %w", w.path, err) }

// WriteDocument appends a document. For texts, learned is nil. For conversations it is the loss
// mask of the ids, and must include an id other than the first. If an id is outside the vocabulary,
// the error is a [*tokenizer.RangeError] and nothing is written.
func (w *Writer) WriteDocument(ids []int32, learned []bool) error {
	t, masked := w.header.Tokenizer, w.header.Conversations()
	if masked && len(learned) != len(ids) || !masked && learned != nil {
		return w.failed(fmt.Errorf("%d tokens, but a loss mask of %d", len(ids), len(learned)))
	}
	for _, id := range ids {
		if id < 0 || int(id) >= t.VocabSize {
			return w.failed(&tokenizer.RangeError{ID: int64(id), VocabSize: t.VocabSize})
		}
	}
	if !masked {
		var before, after []int32
		if t.BOS != tokenizer.NoToken {
			before = []int32{t.BOS}
		}
		if t.EOS != tokenizer.NoToken && t.EOS != t.BOS {
			after = []int32{t.EOS}
		}
		w.header.Documents++
		return w.write(slices.Concat(before, ids, after))
	}
	first := 1 + slices.Index(learned[min(1, len(learned)):], true)
	switch {
	case first == 0:
		return w.failed(fmt.Errorf("document of %d tokens has none that counts in the loss", len(ids)))
	case len(ids) > math.MaxInt32 || w.header.Documents == math.MaxUint32:
		return w.failed(errors.New("too many documents, or a document is too long"))
	}
	for i, learn := range learned {
		token := w.header.Tokens + int64(i)
		if token%8 == 0 {
			w.mask = append(w.mask, 0)
		}
		if learn {
			w.mask[token/8] |= 1 << (token % 8)
			w.header.Learned++
		}
	}
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(len(ids)))
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(first))
	w.header.Longest = max(w.header.Longest, int64(len(ids)))
	w.header.Documents++
	return w.write(ids)
}

func (w *Writer) write(ids []int32) error {
	w.buf = w.buf[:0]
	for _, id := range ids {
		if w.header.TokenBytes == 2 {
			w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(id))
		} else {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(id))
		}
	}
	w.header.Tokens += int64(len(ids))
	return w.writeBytes(w.buf)
}

func (w *Writer) writeBytes(content []byte) error {
	w.sum.Write(content)
	if _, err := w.out.Write(content); err != nil {
		return w.failed(err)
	}
	return nil
}

// Finish writes the sections after the ids and then the header, and syncs and closes the file.
func (w *Writer) Finish() error {
	if w.header.SHA256 != "" {
		return nil
	}
	if err := errors.Join(w.writeBytes(w.mask), w.writeBytes(w.index)); err != nil {
		return err
	}
	w.header.SHA256 = fmt.Sprintf("%x", w.sum.Sum(nil))
	block, err := w.header.encode()
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		_, err = w.file.WriteAt(block, 0)
	}
	if err == nil {
		err = w.file.Close()
	}
	if err != nil {
		return w.failed(err)
	}
	return nil
}

// Commit finishes the file, moves it to its path, and returns once it is durable.
func (w *Writer) Commit() (Header, error) {
	if err := w.Finish(); err != nil {
		return Header{}, err
	}
	if err := w.file.CommitAs(w.path); err != nil {
		return Header{}, w.failed(err)
	}
	return w.header, nil
}

// Abort removes the file. After Commit it does nothing, so it can be deferred.
func (w *Writer) Abort() error { return w.file.Abort() }
