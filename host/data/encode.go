package data

import (
	"fmt"
	"iter"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/parallel"
)

// pieceSize is the amount of text that one processor encodes at a time: many short documents, or a
// piece of a long one.
const pieceSize = 256 << 10

type batch struct {
	documents []document // whole documents, still to be read
	piece     *piece     // or part of a document
}

// piece is part of a document; first and last report its position in it.
type piece struct {
	path        string // of the document
	text        string
	first, last bool
}

type encodedPiece struct {
	ids   []int32
	bytes int64 // of text
	last  bool  // it ends its document
}

// encode writes documents to token files without committing them.
func (p *preparation) encode(out *dataset.Writer, documents []document) error {
	err := parallel.Run(p.ctx, p.batches(documents), p.encodeBatch, func(list []encodedPiece) error {
		for _, e := range list {
			err := out.Append(e.ids, nil)
			ended := int64(0)
			if err == nil && e.last {
				ended, err = 1, out.End()
			}
			if err != nil {
				return err
			}
			p.advance(ended, e.bytes)
		}
		return nil
	})
	if err == nil {
		err = p.ctx.Err()
	}
	if err == nil {
		err = out.Finish()
	}
	return err
}

func (p *preparation) batches(documents []document) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		size := int64(0)
		gathered := documents[:0]
		for i, d := range documents {
			if d.length <= pieceSize {
				gathered = documents[i-len(gathered) : i+1]
				size += d.length
			}
			if size >= pieceSize || d.length > pieceSize && len(gathered) > 0 {
				if !yield(batch{documents: gathered}, nil) {
					return
				}
				gathered, size = gathered[:0], 0
			}
			if d.length > pieceSize && !p.pieces(d, yield) {
				return
			}
		}
		if len(gathered) > 0 {
			yield(batch{documents: gathered}, nil)
		}
	}
}

// pieces cuts a document at positions that do not change its ids. If it finds none in a piece, it
// tries one of twice the length.
func (p *preparation) pieces(d document, yield func(batch, error) bool) bool {
	reader := &textReader{files: p.files}
	defer reader.close()
	var text []byte
	first := true
	for at := int64(0); at < d.length; {
		n := min(d.length-at, max(pieceSize, int64(len(text))))
		text = append(text, make([]byte, n)...)
		if err := reader.readAt(text[int64(len(text))-n:], d, at); err != nil {
			return yield(batch{}, err)
		}
		at += n
		last := at == d.length
		cut := len(text)
		if !last {
			cut = p.options.Tokenizer.Cut(text)
		}
		if cut == 0 {
			continue
		}
		if !yield(batch{piece: &piece{p.files[d.file].path, string(text[:cut]), first, last}}, nil) {
			return false
		}
		text, first = append(text[:0:0], text[cut:]...), false
	}
	return true
}

func (p *preparation) encodeBatch(b batch) ([]encodedPiece, error) {
	if b.piece != nil {
		e, err := p.encodePiece(b.piece)
		return []encodedPiece{e}, err
	}
	reader := &textReader{files: p.files}
	defer reader.close()
	list := make([]encodedPiece, len(b.documents))
	for i, d := range b.documents {
		buf := make([]byte, d.length)
		if err := reader.readAt(buf, d, 0); err != nil {
			return nil, err
		}
		var err error
		whole := &piece{p.files[d.file].path, string(buf), true, true}
		if list[i], err = p.encodePiece(whole); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (p *preparation) encodePiece(piece *piece) (encodedPiece, error) {
	encode := p.options.Tokenizer.Encode
	if !piece.first {
		encode = p.options.Tokenizer.EncodeRest
	}
	ids, err := encode(piece.text)
	if err != nil {
		return encodedPiece{}, fmt.Errorf("%s: the text that begins with %q: %w",
			piece.path, piece.text[:min(len(piece.text), 40)], err)
	}
	return encodedPiece{ids, int64(len(piece.text)), piece.last}, nil
}
