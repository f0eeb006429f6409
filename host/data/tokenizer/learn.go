package tokenizer

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"github.com/cage-qat/cage/internal/lists"
	"maps"
	"slices"
	"strings"
)

// Learner trains a tokenizer on texts: byte-level BPE (Sennrich et al., 2016; Radford et al., 2019)
// that splits words as Llama 3 does. Its tokens are first the 256 bytes, then tokens merged from
// the most frequent pairs, then special tokens.
type Learner struct {
	pre   *preTokenizer
	words map[string]int // number of occurrences
}

// NewLearner returns a learner that has not seen any text.
func NewLearner() *Learner {
	section, _ := json.Marshal(ByteLevelWords(PatternGPT4))
	pre, err := newPreTokenizer(section, nil)
	if err != nil {
		panic(err) // the section is a constant, which a test parses
	}
	return &Learner{pre: pre, words: map[string]int{}}
}

// Add adds a text to the training data.
func (l *Learner) Add(text string) error {
	return l.pre.eachWord(text, true, func(word string) error {
		if _, known := l.words[word]; !known {
			word = strings.Clone(word) // does not keep the text in memory
		}
		l.words[word]++
		return nil
	})
}

// Specials lists the special tokens of a trained tokenizer, which Llama 3's chat template uses:
// first the BOS token, then the EOS token.
var Specials = []string{
	"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
}

// Definition returns the tokenizer.json of a tokenizer with the given number of tokens, or fewer if
// no more pairs occur twice. It does not depend on the order of the texts.
func (l *Learner) Definition(tokens int) ([]byte, error) {
	least := 256 + len(Specials)
	if tokens < least {
		return nil, fmt.Errorf("vocabulary of %d tokens, want at least %d: "+
			"all bytes and the special tokens", tokens, least)
	}
	b := newMerger(l.words)
	for len(b.tokens) < tokens-len(Specials) && b.merge() {
	}
	added := make([]map[string]any, len(Specials))
	for i, special := range Specials {
		added[i] = map[string]any{"id": len(b.tokens) + i, "content": special, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false}
	}
	words := ByteLevelWords(PatternGPT4)
	file := sections(words, Specials[0], len(b.tokens), added, b.ids, b.merges)
	return json.MarshalIndent(file, "", " ")
}

type merger struct {
	tokens []string // by id, in the byte-level alphabet
	ids    map[string]int32
	merges [][2]string
	known  map[[2]string]bool // merges
	words  [][]int32
	counts []int // of each word
	pairs  map[[2]int32]*pairCount
	queue  pairQueue
}

// pairCount counts the occurrences of a pair, and holds the words that may contain it.
type pairCount struct {
	pair  [2]int32
	count int
	words map[int32]struct{}
	index int // in the queue
}

func newMerger(words map[string]int) *merger {
	m := &merger{pairs: map[[2]int32]*pairCount{}, ids: map[string]int32{},
		known: map[[2]string]bool{}}
	for b := range 256 {
		m.id(string(byteToRune[b]))
	}
	for i, word := range slices.Sorted(maps.Keys(words)) {
		ids := lists.Make(len(word), func(j int) int32 { return int32(word[j]) })
		m.words, m.counts = append(m.words, ids), append(m.counts, words[word])
		for j := range len(ids) - 1 {
			m.add(ids[j], ids[j+1], int32(i), words[word])
		}
	}
	return m
}

// id returns the id of a token, and assigns one if the token is new. The same token can result from
// different pairs: "abc" from "ab" and "c", or from "a" and "bc".
func (m *merger) id(token string) int32 {
	id, known := m.ids[token]
	if !known {
		id = int32(len(m.tokens))
		m.tokens, m.ids[token] = append(m.tokens, token), id
	}
	return id
}

func (m *merger) add(a, b, word int32, count int) {
	p := m.pairs[[2]int32{a, b}]
	if p == nil {
		p = &pairCount{pair: [2]int32{a, b}, words: map[int32]struct{}{}}
		m.pairs[p.pair] = p
		heap.Push(&m.queue, p)
	}
	p.count += count
	if count > 0 {
		p.words[word] = struct{}{}
	}
	heap.Fix(&m.queue, p.index)
}

// merge makes the most frequent pair a token; ties go to the smaller ids. It returns false if no
// pair occurs twice.
func (m *merger) merge() bool {
	if len(m.queue) == 0 || m.queue[0].count < 2 {
		return false
	}
	best := heap.Pop(&m.queue).(*pairCount)
	delete(m.pairs, best.pair)
	first, second := m.tokens[best.pair[0]], m.tokens[best.pair[1]]
	id := m.id(first + second)
	if merge := [2]string{first, second}; !m.known[merge] { // the pair may recur
		m.merges, m.known[merge] = append(m.merges, merge), true
	}
	for _, w := range slices.Sorted(maps.Keys(best.words)) {
		m.mergeIn(w, best.pair, id)
	}
	return true
}

// mergeIn replaces a pair in a word, from left to right.
func (m *merger) mergeIn(word int32, pair [2]int32, id int32) {
	ids, count := m.words[word], m.counts[word]
	next := ids[:0:0]
	for i := 0; i < len(ids); i++ {
		if i+1 < len(ids) && ids[i] == pair[0] && ids[i+1] == pair[1] {
			next = append(next, id)
			i++
			continue
		}
		next = append(next, ids[i])
	}
	if len(next) == len(ids) {
		return
	}
	for i := range len(ids) - 1 {
		if p := [2]int32{ids[i], ids[i+1]}; p != pair {
			m.add(p[0], p[1], word, -count)
		}
	}
	for i := range len(next) - 1 {
		m.add(next[i], next[i+1], word, count)
	}
	m.words[word] = next
}

// pairQueue is a heap with the most frequent pair first.
type pairQueue []*pairCount

func (q pairQueue) Len() int { return len(q) }

func (q pairQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.count != b.count {
		return a.count > b.count
	}
	return slices.Compare(a.pair[:], b.pair[:]) < 0
}

func (q pairQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *pairQueue) Push(x any) {
	p := x.(*pairCount)
	p.index = len(*q)
	*q = append(*q, p)
}

func (q *pairQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	*q = (*q)[:last]
	return p
}
