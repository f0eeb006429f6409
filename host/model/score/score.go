// Package score batches sequences of different lengths into few shapes, so that a model can compute
// the likelihoods of their last tokens. It works on token ids: texts, tasks and models are left to
// the caller.
package score

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
)

// A Request asks for the likelihood of a continuation.
type Request struct {
	Context      []int32 // the tokens before the continuation; not empty
	Continuation []int32 // not empty
}

// A Score is a model's answer to a request.
type Score struct {
	LogProb float64 // sum of the log-probabilities of the continuation's tokens, in nats
	Greedy  bool    // whether each of them is the likeliest token at its position
}

// A Batch is a group of requests as rows of equal length. The unused part of a row comes after its
// sequence.
type Batch struct {
	Requests []int   // indices of the requests in the list, in the order of the rows
	Rows     int     // Rows·Length is the same for all batches
	Length   int     // number of tokens in a row
	Tokens   []int32 // [Rows, Length]
	Lengths  []int32 // [Rows], number of tokens in use; 0 for a row without a request

	// Positions and Parts, [Rows, Length], are nil if each row is one sequence. Otherwise a row is
	// a context, which is part 0, followed by several continuations, parts 1, 2 …: a token attends
	// to the context and the earlier tokens of its part, and Positions are the positions in the
	// resulting sequences.
	Positions, Parts []int32

	// Targets are the tokens whose probability is requested, and Indices are the indices in Tokens
	// of the preceding tokens. Their number is rounded up to one of a few sizes; the last entries
	// are padding.
	Indices, Targets []int32

	counts []int // number of targets of each request
}

// rowCounts lists the possible numbers of rows in a batch. All divide every result of [Tokens].
var rowCounts = []int{48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// Tokens returns a batch size in tokens, 3·2ⁿ, of at least minimum and context tokens.
func Tokens(context, minimum int) int {
	n := 3 * 64
	for n < max(context, minimum) {
		n *= 2
	}
	return n
}

// Batches divides requests into batches of the given number of tokens, which must be a result of
// [Tokens]. The longest requests come first, so that a lack of memory shows at once. A sequence
// longer than context + 1 tokens, the last of which is only a target, is truncated at the front; a
// continuation longer than context is an error. If share is set, requests with the same context can
// share a row, which holds the context once.
//
// Equal requests give equal batches, so that interrupted work can be resumed after any batch.
func Batches(requests []Request, tokens, context int, share bool) ([]Batch, error) {
	for i, r := range requests {
		if len(r.Context) == 0 || len(r.Continuation) == 0 {
			return nil, fmt.Errorf("score: request %d has %d tokens of context and %d of continuation, "+
				"want at least one of each", i, len(r.Context), len(r.Continuation))
		}
		if len(r.Continuation) > context {
			return nil, fmt.Errorf("score: request %d has %d tokens of continuation, want at most %d",
				i, len(r.Continuation), context)
		}
	}
	list := rows(requests, tokens, context, share)
	slices.SortStableFunc(list, func(a, b row) int { return cmp.Compare(b.length, a.length) })
	var batches []Batch
	for len(list) > 0 {
		// The batch gets as many rows as fit if each is as long as the longest sequence.
		fit := slices.IndexFunc(rowCounts, func(rows int) bool { return tokens/rows >= list[0].length })
		if fit < 0 {
			return nil, fmt.Errorf("score: got a sequence of %d tokens, want at most %d",
				list[0].length, tokens)
		}
		count := rowCounts[fit]
		n := min(count, len(list))
		batches = append(batches, newBatch(requests, list[:n], count, tokens/count, context))
		list = list[n:]
	}
	return batches, nil
}

func newBatch(requests []Request, list []row, count, length, context int) Batch {
	b := Batch{Rows: count, Length: length, Tokens: make([]int32, count*length),
		Lengths: make([]int32, count)}
	for i, r := range list {
		if len(r.requests) > 1 && b.Parts == nil {
			b.Parts = make([]int32, count*length)
			b.Positions = lists.Make(count*length, func(i int) int32 { return int32(i % length) })
		}
		b.Requests = append(b.Requests, r.requests...)
		b.Lengths[i] = int32(r.length)
		at := i * length
		if len(r.requests) > 1 {
			b.addShared(requests, r.requests, at)
			continue
		}
		r := requests[r.requests[0]]
		all := slices.Concat(r.Context, r.Continuation)
		all = all[max(0, len(all)-context-1):]
		seen := len(all) - 1
		copy(b.Tokens[at:], all[:seen])
		targets := len(r.Continuation)
		for k := seen - targets; k < seen; k++ {
			b.Indices = append(b.Indices, int32(at+k))
			b.Targets = append(b.Targets, all[k+1])
		}
		b.counts = append(b.counts, targets)
	}
	size := 64
	for size < len(b.Targets) {
		size *= 2
	}
	b.Indices = append(b.Indices, make([]int32, size-len(b.Indices))...)
	b.Targets = append(b.Targets, make([]int32, size-len(b.Targets))...)
	return b
}

// Split divides a list with an entry per target into a list per request, in the order of Requests.
func (b *Batch) Split(targets []float32) [][]float32 {
	list := make([][]float32, len(b.counts))
	for i, n := range b.counts {
		list[i], targets = targets[:n:n], targets[n:]
	}
	return list
}

// Scores returns the score of each request, given the model's results for the targets: the
// log-probability of each, and whether it is the likeliest token.
func (b *Batch) Scores(logProbs []float32, likeliest []bool) []Score {
	list := make([]Score, len(b.Requests))
	at := 0
	for i, n := range b.counts {
		list[i].Greedy = true
		for range n {
			list[i].LogProb += float64(logProbs[at])
			list[i].Greedy = list[i].Greedy && likeliest[at]
			at++
		}
	}
	return list
}

// row describes a row of a batch: one request, or several with the same context.
type row struct {
	requests []int
	length   int // number of input tokens
}

// seen returns the number of input tokens of a request: the last token is only a target.
func (r Request) seen() int { return len(r.Context) + len(r.Continuation) - 1 }

// rows divides requests into rows, in the order of their first requests. A shared row is at most
// twice as long as its longest sequence: attention is computed over the whole row, and would soon
// cost more than the shared context saves.
func rows(requests []Request, tokens, context int, share bool) (list []row) {
	open := map[string]int{} // by context, the row that the next request with it may join
	for i, r := range requests {
		if !share || r.seen() > context {
			list = append(list, row{[]int{i}, min(r.seen(), context)})
			continue
		}
		var context []byte
		for _, id := range r.Context {
			context = binary.LittleEndian.AppendUint32(context, uint32(id))
		}
		key := string(context)
		if at, ok := open[key]; ok {
			row, longest := &list[at], r.seen()
			for _, j := range row.requests {
				longest = max(longest, requests[j].seen())
			}
			if length := row.length + len(r.Continuation) - 1; length <= min(tokens, 2*longest) {
				row.requests, row.length = append(row.requests, i), length
				continue
			}
		}
		open[key] = len(list)
		list = append(list, row{[]int{i}, r.seen()})
	}
	return list
}

// addShared fills the row that begins at Tokens[at] with a context and its continuations. The first
// token of each continuation follows the end of the context, which is stored once.
func (b *Batch) addShared(requests []Request, which []int, at int) {
	before := requests[which[0]].Context
	copy(b.Tokens[at:], before)
	end := at + len(before) - 1 // index of the context's last token
	next := end + 1
	for part, i := range which {
		c := requests[i].Continuation
		b.Indices, b.Targets = append(b.Indices, int32(end)), append(b.Targets, c[0])
		for k, id := range c[:len(c)-1] {
			b.Tokens[next], b.Parts[next], b.Positions[next] = id, int32(part+1), int32(len(before)+k)
			b.Indices, b.Targets = append(b.Indices, int32(next)), append(b.Targets, c[k+1])
			next++
		}
		b.counts = append(b.counts, len(c))
	}
}
