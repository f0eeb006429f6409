package score

import (
	"cmp"
	"fmt"
	"slices"
)

// A Request asks how likely a continuation is.
type Request struct {
	Context      []int32 // what comes before; not empty
	Continuation []int32 // not empty
}

// A Score is what a model says to a request.
type Score struct {
	LogProb float64 // sum of the log-probabilities of the continuation's tokens, in nats
	Greedy  bool    // whether each of them is the likeliest token at its place
}

// A Batch is some requests as rows of the same length. What is not used of a row is behind its sequence.
type Batch struct {
	Requests []int   // places of its requests in the list, in the order of rows
	Rows     int     // Rows·Length is the same for all batches
	Length   int     // tokens of a row
	Tokens   []int32 // [Rows, Length]
	Lengths  []int32 // [Rows], the tokens that are used; 0 where there is no request

	// Positions and Parts, [Rows, Length], are nil where each row is one sequence. Otherwise a row is a context, part 0,
	// with several continuations behind each other, parts 1, 2 …: a token is to see the context and those before it in its
	// part, and Positions are those in its sequence.
	Positions, Parts []int32

	// Targets are tokens whose probability is wanted, and Places the tokens that they follow, as places in Tokens. Both
	// have as many elements as one of few sizes; those behind the last request's are not used.
	Places, Targets []int32

	counts []int // targets of each request
}

// parts are the numbers of rows that a batch can have. All divide [Tokens]'s results.
var parts = []int{48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// Tokens is a number of tokens of a batch, 3·2ⁿ, of at least the given size, in which a sequence of context tokens fits.
func Tokens(context, least int) int {
	n := 3 * 64
	for n < max(context, least) {
		n *= 2
	}
	return n
}

// Batches divides requests into batches of the given number of tokens, one of those that [Tokens] returns: the longest
// first, so that memory that does not suffice is noticed at once. A sequence of which a model sees context tokens is cut
// in front: of context + 1 tokens the last is only a target. With share, requests of the same context can be one row,
// which has the context once.
//
// Equal requests have equal batches, so that work that was interrupted can go on behind a batch.
func Batches(requests []Request, tokens, context int, share bool) ([]Batch, error) {
	for i, r := range requests {
		if len(r.Context) == 0 || len(r.Continuation) == 0 {
			return nil, fmt.Errorf("score: request %d has %d tokens of context and a continuation of %d: want some of both", i, len(r.Context), len(r.Continuation))
		}
	}
	list := rows(requests, tokens, context, share)
	slices.SortStableFunc(list, func(a, b row) int { return cmp.Compare(b.length, a.length) })
	var batches []Batch
	for len(list) > 0 {
		count := rowsFor(list[0].length, tokens)
		if count == 0 {
			return nil, fmt.Errorf("score: a sequence of %d tokens does not fit into batches of %d", list[0].length, tokens)
		}
		n := min(count, len(list))
		batches = append(batches, newBatch(requests, list[:n], count, tokens/count, context))
		list = list[n:]
	}
	return batches, nil
}

// rowsFor is the largest number of rows that leaves room for sequences of the given length.
func rowsFor(length, tokens int) int {
	for _, rows := range parts {
		if tokens/rows >= length {
			return rows
		}
	}
	return 0
}

func newBatch(requests []Request, list []row, count, length, context int) Batch {
	b := Batch{Rows: count, Length: length, Tokens: make([]int32, count*length), Lengths: make([]int32, count)}
	for i, r := range list {
		if len(r.requests) > 1 && b.Parts == nil {
			b.Positions, b.Parts = make([]int32, count*length), make([]int32, count*length)
			for place := range b.Positions {
				b.Positions[place] = int32(place % length)
			}
		}
		b.Requests = append(b.Requests, r.requests...)
		b.Lengths[i] = int32(r.length)
		if len(r.requests) == 1 {
			b.addOne(requests[r.requests[0]], i*length, context)
		} else {
			b.addShared(requests, r.requests, i*length)
		}
	}
	size := 64
	for size < len(b.Targets) {
		size *= 2
	}
	b.Places = append(b.Places, make([]int32, size-len(b.Places))...)
	b.Targets = append(b.Targets, make([]int32, size-len(b.Targets))...)
	return b
}

// addOne fills the row that begins at a place with one sequence.
func (b *Batch) addOne(r Request, at, context int) {
	all := slices.Concat(r.Context, r.Continuation)
	all = all[max(0, len(all)-context-1):]
	seen := len(all) - 1
	copy(b.Tokens[at:], all[:seen])
	count := min(len(r.Continuation), seen)
	for k := seen - count; k < seen; k++ {
		b.Places = append(b.Places, int32(at+k))
		b.Targets = append(b.Targets, all[k+1])
	}
	b.counts = append(b.counts, count)
}

// Scores adds up what the model says of the targets: the log-probability of each, and whether it is the likeliest token.
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
