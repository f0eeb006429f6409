package dataset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// index says where the documents of conversations lie, and which tokens are trained on.
type index struct {
	starts []int64  // of each document, in tokens, and the end of the last
	firsts []uint32 // the first token of each that is trained on
	mask   []byte
}

// readIndex reads the mask and the index of conversations, which lie in one file.
func (f *File) readIndex() error {
	p := &f.parts[0]
	n, maskBytes := int(p.header.Documents), p.header.maskBytes()
	raw := make([]byte, maskBytes+p.header.indexBytes())
	if _, err := p.file.ReadAt(raw, headerSize+p.header.idBytes()); err != nil && (err != io.EOF || len(raw) > 0) {
		return &FormatError{p.path, err.Error()}
	}
	f.index = index{make([]int64, n+1), make([]uint32, n), bytes.Clone(raw[:maskBytes])}
	longest := int64(0)
	for i, raw := 0, raw[maskBytes:]; i < n; i++ {
		length := int64(binary.LittleEndian.Uint32(raw[i*entrySize:]))
		first := binary.LittleEndian.Uint32(raw[i*entrySize+4:])
		if first < 1 || int64(first) >= length {
			return &FormatError{p.path, fmt.Sprintf("document %d has %d tokens, of which the first to learn is %d: the file was changed or damaged", i, length, first)}
		}
		f.index.starts[i+1], f.index.firsts[i] = f.index.starts[i]+length, first
		longest = max(longest, length)
	}
	if tokens := f.index.starts[n]; tokens != p.header.Tokens || longest != p.header.Longest {
		return &FormatError{p.path, fmt.Sprintf("the documents have %d tokens, the longest %d; the header says %d and %d: the file was changed or damaged",
			tokens, longest, p.header.Tokens, p.header.Longest)}
	}
	return nil
}

// Documents returns the number of conversations; 0 for texts.
func (f *File) Documents() int { return len(f.index.firsts) }

// Tokens returns the number of tokens in a conversation.
func (f *File) Tokens(document int) int {
	return int(f.index.starts[document+1] - f.index.starts[document])
}

// Learned reports whether the first tokens of a conversation, as many as fit into a row of
// this length, include one that is trained on.
func (f *File) Learned(document, length int) bool {
	return int64(f.index.firsts[document]) < int64(length)
}

// ReadDocument fills ids and learned, which must have the same length, with the first tokens
// of a conversation, and whether each is trained on.
func (f *File) ReadDocument(document int, ids []int32, learned []bool) error {
	if document < 0 || document >= f.Documents() || len(ids) != len(learned) || len(ids) > f.Tokens(document) {
		return fmt.Errorf("token file %s: %d tokens of document %d asked for, which it does not have", f.Path(), len(ids), document)
	}
	if err := f.ReadTokens(ids, f.index.starts[document]); err != nil {
		return fmt.Errorf("document %d: %w", document, err)
	}
	f.readMask(learned, f.index.starts[document])
	return nil
}

// readMask fills learned with the bits of the tokens from position at onwards.
func (f *File) readMask(learned []bool, at int64) {
	mask, bit := f.index.mask[at/8:], uint(at%8)
	for i := range learned {
		learned[i] = mask[bit/8]>>(bit%8)&1 != 0
		bit++
	}
}

// verifyIndex compares the index with the mask.
func (f *File) verifyIndex() error {
	var learned []bool
	total := int64(0)
	for i := range f.Documents() {
		learned = append(learned[:0], make([]bool, f.Tokens(i))...)
		f.readMask(learned, f.index.starts[i])
		first := 0
		for at, learn := range learned {
			if learn {
				total++
				if first == 0 {
					first = at
				}
			}
		}
		if want := int(f.index.firsts[i]); first != want {
			return &FormatError{f.Path(), fmt.Sprintf("document %d: the first token to learn is %d, the index says %d: the file was changed or damaged", i, first, want)}
		}
	}
	if total != f.header.Learned {
		return &FormatError{f.Path(), fmt.Sprintf("%d tokens are to be learned, the header says %d: the file was changed or damaged", total, f.header.Learned)}
	}
	return nil
}
