package main

import (
	"go/scanner"
	"go/token"
	"math/rand/v2"
	"slices"
	"strings"
)

// Sizes that fit into 128 bytes with the answer.
const (
	noiseBytes = 80  // around needles
	clozeBytes = 108 // before a cloze
	longest    = 16  // of its answers
	shortest   = 3
)

// slots are keys with their possible values. No two keys share a value, so that a single lookup in
// the context finds it: a model with two layers learns that within some hundred steps, but not the
// general lookup, where any key can have any value.
var slots = []struct{ key, values string }{
	{"A", "0123"}, {"B", "4567"}, {"C", "wxyz"}, {"D", "@#$%"}}

// needleSlots are the slots hidden among lines of source, where their values are rare.
const needleSlots = 2

// pair is a slot with its value.
type pair struct {
	slot  int
	value byte
}

func (p pair) String() string { return slots[p.slot].key + string(p.value) }

// pairs returns the first slots in random order, with random values.
func pairs(r *rand.Rand, n int) (list []pair) {
	for _, i := range r.Perm(n) {
		list = append(list, pair{i, slots[i].values[r.IntN(choiceCount)]})
	}
	return list
}

// stated formats pairs: "A2D@B7".
func stated(list []pair) string {
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.String())
	}
	return b.String()
}

// recallText returns a line of pairs followed by repetitions of them in random order:
// "A2B7:B7A2A2B7".
func recallText(r *rand.Rand) string {
	list := pairs(r, len(slots))
	text := stated(list) + ":"
	for range 4 {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		text += stated(list)
	}
	return text + "\n"
}

// lookup returns a question for the value of a pair in a text; the choices are all values of its
// key.
func lookup(r *rand.Rand, text string, list []pair) item {
	p := list[r.IntN(len(list))]
	values := slots[p.slot].values
	return item{text + slots[p.slot].key, strings.Split(values, ""),
		strings.IndexByte(values, p.value)}
}

// marked is the prefix of lines with a pair, in the text and in the question.
const marked = "//! "

// hidden returns lines of source with marked lines among them, each with a pair.
func hidden(r *rand.Rand, sources []string) (text string, list []pair) {
	list = pairs(r, needleSlots)
	lines := strings.Split(snippet(r, sources, noiseBytes), "\n")
	for _, p := range list {
		lines = slices.Insert(lines, r.IntN(len(lines)+1), marked+p.String())
	}
	return strings.Join(lines, "\n") + "\n", list
}

// needleText returns a training text that asks for all hidden pairs, twice.
func needleText(r *rand.Rand, sources []string) string {
	text, list := hidden(r, sources)
	for range 2 {
		for _, i := range r.Perm(len(list)) {
			text += marked + list[i].String() + "\n"
		}
	}
	return text
}

// snippet returns part of a random source file, in ASCII.
func snippet(r *rand.Rand, sources []string, size int) string {
	for {
		s := sources[r.IntN(len(sources))]
		if len(s) <= size {
			continue
		}
		at := r.IntN(len(s) - size)
		if text := s[at : at+size]; !strings.ContainsFunc(text, func(c rune) bool { return c >= 0x80 }) {
			return text
		}
	}
}

// clozes returns at most n questions for identifiers that also occur shortly before; the other
// choices are from the same file.
func clozes(r *rand.Rand, sources []string, n int) (list []item) {
	for _, k := range r.Perm(len(sources)) {
		places, names := identifiers(sources[k])
		for range 8 { // of each file
			if len(places) == 0 || len(list) == n {
				break
			}
			p := places[r.IntN(len(places))]
			before := sources[k][max(0, p.at-clozeBytes):p.at]
			if p.at < clozeBytes || !strings.Contains(before, p.name) ||
				strings.ContainsFunc(before, func(c rune) bool { return c >= 0x80 }) {
				continue
			}
			var wrong []string
			for _, i := range r.Perm(len(names)) {
				if names[i] != p.name {
					wrong = append(wrong, names[i])
				}
			}
			if len(wrong) >= choiceCount-1 {
				gold := r.IntN(choiceCount)
				list = append(list,
					item{before, slices.Insert(wrong[:choiceCount-1:choiceCount-1], gold, p.name), gold})
			}
		}
	}
	return list
}

// place is the position of an identifier.
type place struct {
	name string
	at   int
}

// identifiers returns the positions of a file's identifiers that can be answers, and the distinct
// identifiers.
func identifiers(source string) (places []place, names []string) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), func(token.Position, string) {}, 0)
	for {
		pos, tok, name := s.Scan()
		if tok == token.EOF {
			return places, names
		}
		if tok == token.IDENT && len(name) >= shortest && len(name) <= longest {
			places = append(places, place{name, file.Offset(pos)})
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
}
