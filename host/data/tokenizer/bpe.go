package tokenizer

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe is the byte-pair encoding model: it converts one word to ids by repeatedly merging the
// adjacent pair with the lowest rank (Sennrich et al. 2016).
type bpe struct {
	vocab        map[string]int32
	merges       map[uint64]merge
	bytes        [256]int32 // ids of <0x00> … <0xFF>, or noID
	unk          int32      // or noID
	fuseUnk      bool
	ignoreMerges bool
	byteLevel    bool // words arrive as text and are looked up in the byte-level alphabet
	cutsAtMarks  bool // words can be split where spaceMark follows another character
}

type merge struct {
	rank int32 // its index in the list of merges
	id   int32 // id of the merged token
}

const noID int32 = -1

func newBPE(def *modelDefinition) (*bpe, error) {
	m := &bpe{
		vocab:        def.Vocab,
		merges:       make(map[uint64]merge, len(def.Merges)),
		unk:          noID,
		fuseUnk:      def.FuseUnk,
		ignoreMerges: def.IgnoreMerges,
	}
	if def.UnkToken != nil {
		id, ok := def.Vocab[*def.UnkToken]
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", *def.UnkToken)
		}
		m.unk = id
	}
	for b := range m.bytes {
		m.bytes[b] = noID
		if id, ok := def.Vocab[fmt.Sprintf("<0x%02X>", b)]; ok && def.ByteFallback {
			m.bytes[b] = id
		}
	}
	for rank, pair := range def.Merges {
		left, okLeft := def.Vocab[pair[0]]
		right, okRight := def.Vocab[pair[1]]
		joined, okJoined := def.Vocab[pair[0]+pair[1]]
		if !okLeft || !okRight || !okJoined {
			return nil, fmt.Errorf("model.merges[%d]: %q + %q: "+
				"a part or the result is not in the vocabulary", rank, pair[0], pair[1])
		}
		// If a pair has two entries, the later one wins, as in the reference library.
		m.merges[pairKey(left, right)] = merge{rank: int32(rank), id: joined}
	}
	m.cutsAtMarks = m.marksWords(def.Merges)
	return m, nil
}

// appendWord appends the ids of a word. A character that is not a token becomes its bytes if all of
// them are tokens, or else the unknown token.
func (m *bpe) appendWord(dst []int32, word string, g *wordMerger) ([]int32, error) {
	if m.byteLevel {
		word = toByteLevel(word)
	}
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return append(dst, id), nil
		}
	}
	g.ids = g.ids[:0]
	lastUnknown := false
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+size]
		i += size
		unknown := false
		if id, ok := m.vocab[char]; ok {
			g.ids = append(g.ids, id)
		} else if !slices.ContainsFunc([]byte(char), func(b byte) bool { return m.bytes[b] == noID }) {
			for j := range len(char) {
				g.ids = append(g.ids, m.bytes[char[j]])
			}
		} else if unknown = true; m.unk == noID {
			return dst, fmt.Errorf("no token contains the character %q, "+
				"and the tokenizer has no unknown token", char)
		} else if !lastUnknown || !m.fuseUnk {
			g.ids = append(g.ids, m.unk)
		}
		lastUnknown = unknown
	}
	dst, _ = m.merge(dst, g)
	return dst, nil
}

// spaceMark is the character "▁", which SentencePiece-style tokenizers write for a space.
const spaceMark = "\u2581"

// marksWords reports whether merged tokens have spaceMark only at their beginning. Then no merge
// crosses a position where spaceMark follows another character, and the parts between such
// positions can be encoded separately. Otherwise, a whole document is one word.
func (m *bpe) marksWords(merges []mergePair) bool {
	if _, ok := m.vocab[spaceMark]; !ok || m.ignoreMerges {
		return false
	}
	return !slices.ContainsFunc(merges, func(pair mergePair) bool {
		return strings.Contains(strings.TrimLeft(pair[0]+pair[1], spaceMark), spaceMark)
	})
}

// wordCache appends the ids of words, and caches the ids of short words, because most words of a
// text recur. It is used by one goroutine at a time.
type wordCache struct {
	model *bpe
	ids   []int32 // of the text so far

	known map[string][]int32 // by word
	wordMerger
}

const (
	maxCachedWord  = 64      // bytes
	maxCachedWords = 1 << 16 // a full cache is cleared
)

func (c *wordCache) appendID(id int32) { c.ids = append(c.ids, id) }

func (c *wordCache) appendWord(word string) error {
	if ids, ok := c.known[word]; ok {
		c.ids = append(c.ids, ids...)
		return nil
	}
	before := len(c.ids)
	var err error
	c.ids, err = c.model.appendWord(c.ids, word, &c.wordMerger)
	if err != nil || len(word) > maxCachedWord {
		return err
	}
	if len(c.known) >= maxCachedWords {
		clear(c.known)
	}
	c.known[strings.Clone(word)] = slices.Clone(c.ids[before:])
	return nil
}

// appendMarkedWords calls appendWord for the parts of a text that begin where spaceMark follows
// another character.
func (c *wordCache) appendMarkedWords(text string) error {
	for len(text) > 0 {
		at := len(text) - len(strings.TrimLeft(text, spaceMark))
		if i := strings.Index(text[at:], spaceMark); i >= 0 {
			at += i
		} else {
			at = len(text)
		}
		if err := c.appendWord(text[:at]); err != nil {
			return err
		}
		text = text[at:]
	}
	return nil
}

// wordMerger merges symbols. It reuses memory between words.
type wordMerger struct {
	ids   []int32
	list  []symbol
	queue candidates
}

// noMerge stands for a pair that cannot be merged.
var noMerge = merge{rank: math.MaxInt32}

func (m *bpe) pair(left, right int32) merge {
	if joined, ok := m.merges[pairKey(left, right)]; ok {
		return joined
	}
	return noMerge
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// symbol is a node of a doubly linked list in a slice. The id becomes noID when the symbol is
// merged into the previous one.
type symbol struct {
	id         int32
	prev, next int32
}

// merge merges adjacent pairs of g.ids in the order of their rank, and from left to right among
// equal ranks, until no pair can be merged, and appends the resulting ids. last is the rank of the
// last merge, or −1 if there was none. With a heap this takes O(n log n).
func (m *bpe) merge(dst []int32, g *wordMerger) (_ []int32, last int32) {
	last = -1
	g.list, g.queue = slices.Grow(g.list[:0], len(g.ids)), slices.Grow(g.queue[:0], len(g.ids))
	for i, id := range g.ids {
		g.list = append(g.list, symbol{id, int32(i) - 1, int32(i) + 1})
	}
	for i := 0; i+1 < len(g.ids); i++ {
		if joined := m.pair(g.ids[i], g.ids[i+1]); joined != noMerge {
			g.queue = append(g.queue, candidate{joined, int32(i)})
		}
	}
	heap.Init(&g.queue)
	for len(g.queue) > 0 {
		top := heap.Pop(&g.queue).(candidate)
		left := &g.list[top.at]
		if left.id == noID || int(left.next) >= len(g.list) {
			continue
		}
		right := &g.list[left.next]
		if joined := m.pair(left.id, right.id); joined.id != top.id || joined == noMerge {
			continue // an earlier merge has changed one of its symbols
		}
		left.id, right.id, last = top.id, noID, top.rank
		left.next = right.next
		if int(left.next) < len(g.list) {
			g.list[left.next].prev = top.at
		}
		m.push(g, left.prev)
		m.push(g, top.at)
	}
	for i := range g.list {
		if g.list[i].id != noID {
			dst = append(dst, g.list[i].id)
		}
	}
	return dst, last
}

func (m *bpe) push(g *wordMerger, at int32) {
	if at < 0 || int(g.list[at].next) >= len(g.list) {
		return
	}
	if joined := m.pair(g.list[at].id, g.list[g.list[at].next].id); joined != noMerge {
		heap.Push(&g.queue, candidate{joined, at})
	}
}

// candidate is a possible merge of a symbol with its successor.
type candidate struct {
	merge
	at int32
}

type candidates []candidate

func (q candidates) Len() int { return len(q) }
func (q candidates) Less(i, j int) bool {
	if q[i].rank != q[j].rank {
		return q[i].rank < q[j].rank
	}
	return q[i].at < q[j].at
}
func (q candidates) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *candidates) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *candidates) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
