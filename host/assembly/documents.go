package assembly

import (
	"github.com/cage-qat/cage/host/chat/rows"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
)

// separate fills dst, rows of documents, from windows of tokens, [rows, context+1]: a document
// begins at a begin token and behind an end token, and its first token is nobody's target. Where both
// are the same token, documents have no end token, as data.Writer writes them.
func separate(dst, windows []int32, context int, info tokenizer.Info) {
	width := context + 1
	ends := info.EOS != tokenizer.NoToken && info.EOS != info.BOS
	for i, row := range model.DocumentRows(dst, context) {
		copy(row.Tokens, windows[i*width:(i+1)*width])
		segment := int32(0)
		for place, token := range row.Tokens {
			weight := float32(1)
			if place > 0 && (token == info.BOS || ends && row.Tokens[place-1] == info.EOS) {
				segment++
				weight = 0
			}
			row.Segments[place] = segment
			if place > 0 {
				row.SetWeight(place, weight)
			}
		}
	}
}

// conversation fills a row of documents from one of a chat file, which is as long as the
// context: the place behind it is padding.
func conversation(row model.DocumentRow, from rows.Row) {
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
