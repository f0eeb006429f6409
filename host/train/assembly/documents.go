package assembly

import (
	"github.com/cage-qat/cage/host/data/arrange"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
)

// separate fills dst, rows of documents, from windows of tokens, [rows, context+1]. The first token of a document is nobody's
// target.
func separate(dst, windows []int32, context int, info tokenizer.Info) {
	width := context + 1
	for i, row := range model.DocumentRows(dst, context) {
		copy(row.Tokens, windows[i*width:(i+1)*width])
		numberDocuments(row.Segments, row.Tokens, info)
		for place := 1; place < width; place++ {
			weight := float32(1)
			if row.Segments[place] != row.Segments[place-1] {
				weight = 0
			}
			row.SetWeight(place, weight)
		}
	}
}

// numberDocuments fills segments with the numbers of the documents in a window of tokens, from 0: one begins at a begin
// token and behind an end token. Where both are the same token, documents have no end token, as dataset.Writer writes them.
func numberDocuments(segments, window []int32, info tokenizer.Info) {
	ends := info.EOS != tokenizer.NoToken && info.EOS != info.BOS
	number := int32(0)
	for place, token := range window {
		if place > 0 && (token == info.BOS || ends && window[place-1] == info.EOS) {
			number++
		}
		segments[place] = number
	}
}

// conversation fills a row of documents from one of conversations, which is as long as the
// context: the place behind it is padding.
func conversation(row model.DocumentRow, from arrange.Row) {
	n := copy(row.Tokens, from.Tokens)
	row.Tokens[n], row.Segments[n] = 0, model.Padding
	copy(row.Segments, from.Segments)
	for place := 1; place < n; place++ {
		row.SetWeight(place, from.Weights[place-1])
	}
	row.SetWeight(n, 0)
}

// targets is the number of targets of a batch of documents whose weights are 0 or 1.
func targets(batch []int32, context int) int64 { return int64(model.TotalWeight(batch, context)) }
