package score

import (
	"encoding/binary"
)

// row is what becomes one row of a batch: one request, or several of the same context.
type row struct {
	requests []int
	length   int // tokens that a model sees
}

// seen is the number of tokens of a request that a model sees: the last is only a target.
func (r Request) seen() int { return len(r.Context) + len(r.Continuation) - 1 }

// rows divides requests into rows, in the order of their first requests.
func rows(requests []Request, tokens, context int, share bool) (list []row) {
	open := map[string]int{} // by context, the row that the next request of it may join
	for i, r := range requests {
		if !share || r.seen() > context {
			list = append(list, row{[]int{i}, min(r.seen(), context)})
			continue
		}
		key := string(bytesOf(r.Context))
		at, some := open[key]
		if some && list[at].takes(requests, r, tokens) {
			list[at].requests = append(list[at].requests, i)
			list[at].length += len(r.Continuation) - 1
			continue
		}
		open[key] = len(list)
		list = append(list, row{[]int{i}, r.seen()})
	}
	return list
}

// takes reports whether a request of the row's context can join it: a row is at most twice as long as its longest sequence.
// Attention looks at all of a row, and would soon cost more than the context that is saved.
func (w row) takes(requests []Request, r Request, tokens int) bool {
	longest := r.seen()
	for _, i := range w.requests {
		longest = max(longest, requests[i].seen())
	}
	return w.length+len(r.Continuation)-1 <= min(tokens, 2*longest)
}

func bytesOf(ids []int32) []byte {
	var key []byte
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
	}
	return key
}

// addShared fills the row that begins at a place with a context and its continuations. The first token of each
// continuation follows the end of the context, which stands there once.
func (b *Batch) addShared(requests []Request, which []int, at int) {
	before := requests[which[0]].Context
	copy(b.Tokens[at:], before)
	end := at + len(before) - 1 // place of the context's last token
	next := end + 1
	for part, i := range which {
		c := requests[i].Continuation
		b.Places, b.Targets = append(b.Places, int32(end)), append(b.Targets, c[0])
		for k, id := range c[:len(c)-1] {
			b.Tokens[next], b.Parts[next], b.Positions[next] = id, int32(part+1), int32(len(before)+k)
			b.Places, b.Targets = append(b.Places, int32(next)), append(b.Targets, c[k+1])
			next++
		}
		b.counts = append(b.counts, len(c))
	}
}
