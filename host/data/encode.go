package data

import (
	"fmt"
	"iter"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/parallel"
)

// batchBytes is the amount of text that one processor encodes at a time; the last document of a
// batch may exceed it.
const batchBytes = 256 << 10

// maxDocument is the maximal size of a document, which is encoded in memory as a whole.
const maxDocument = 1 << 30

type encodedDocument struct {
	ids   []int32
	bytes int64 // of text
}

// encode writes documents to a token file without finishing it.
func (p *preparation) encode(out *dataset.Writer, documents []document) error {
	err := parallel.Run(p.ctx, batches(documents), p.encodeBatch, func(list []encodedDocument) error {
		for _, e := range list {
			if err := out.WriteDocument(e.ids, nil); err != nil {
				return err
			}
			p.advance(1, e.bytes)
		}
		return nil
	})
	if err == nil {
		err = p.ctx.Err()
	}
	return err
}

func batches(documents []document) iter.Seq2[[]document, error] {
	return func(yield func([]document, error) bool) {
		for len(documents) > 0 {
			n := 0
			for size := int64(0); n < len(documents) && size < batchBytes; n++ {
				size += documents[n].length
			}
			if !yield(documents[:n], nil) {
				return
			}
			documents = documents[n:]
		}
	}
}

func (p *preparation) encodeBatch(batch []document) ([]encodedDocument, error) {
	reader := &textReader{files: p.files}
	defer reader.close()
	list := make([]encodedDocument, len(batch))
	for i, d := range batch {
		text, err := reader.read(d)
		if err != nil {
			return nil, err
		}
		ids, err := p.options.Tokenizer.Encode(text)
		if err != nil {
			return nil, fmt.Errorf("%s: the text that begins with %q: %w",
				p.files[d.file].path, text[:min(len(text), 40)], err)
		}
		list[i] = encodedDocument{ids, d.length}
	}
	return list, nil
}
