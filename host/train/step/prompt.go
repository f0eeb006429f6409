package step

import (
	"slices"

	"github.com/cage-qat/cage/host/model/generate"
)

// Piece is how many tokens of a prompt are read at once.
const Piece = 64

// Pieces are the numbers of tokens that are read at once to continue so many sequences; see [Plan.Pieces].
func Pieces(sequences int) []int {
	if sequences == 0 {
		return nil
	}
	return []int{Piece * sequences, sequences}
}

// Begin reads prompts, as [generate.Model] says. Shorter prompts have padding in front, and the longest has some where it is not a whole
// number of pieces.
func (e *Evaluator) Begin(prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p))
	}
	places := (longest + Piece - 1) / Piece * Piece
	first := make([]int32, len(prompts))
	rows := make([][]int32, len(prompts))
	for i, p := range prompts {
		first[i] = int32(places - len(p))
		rows[i] = slices.Concat(make([]int32, places-len(p)), p)
	}
	d, err := e.Decoder(first, room(places+length-longest))
	if err != nil {
		return nil, nil, err
	}
	var logits []float32
	for at := 0; at < places; at += Piece {
		var tokens []int32
		for _, row := range rows {
			tokens = append(tokens, row[at:at+Piece]...)
		}
		if logits, err = d.Next(tokens); err != nil {
			d.Close()
			return nil, nil, err
		}
	}
	return d, logits, nil
}

// room is a number of tokens that has at least the given one: one of few, because a program
// is compiled for each.
func room(tokens int) int {
	n := 2 * Piece
	for n < tokens {
		n *= 2
	}
	return n
}
