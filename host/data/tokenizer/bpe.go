package tokenizer

import (
	"container/heap"
	"fmt"
	"unicode/utf8"
)

// bpe is the byte-pair model: it turns one word into ids by joining, again and
// again, the adjacent pair that was learned first (Sennrich et al. 2016).
type bpe struct {
	vocab        map[string]int32
	merges       map[[2]int32]merge
	bytes        [256]int32 // ids of <0x00> … <0xFF>, or noID
	unk          int32      // or noID
	fuseUnk      bool
	ignoreMerges bool
	byteLevel    bool // words arrive as text and are looked up in the byte-level alphabet
}

type merge struct {
	rank int32 // the smaller, the earlier learned
	id   int32 // what the pair becomes
}

const noID int32 = -1

func newBPE(def *modelDefinition) (*bpe, error) {
	m := &bpe{
		vocab:        def.Vocab,
		merges:       make(map[[2]int32]merge, len(def.Merges)),
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
			return nil, fmt.Errorf("model.merges[%d]: %q + %q: a part or the result is not in the vocabulary", rank, pair[0], pair[1])
		}
		// Of two entries for one pair the later wins, as in the original library.
		m.merges[[2]int32{left, right}] = merge{rank: int32(rank), id: joined}
	}
	return m, nil
}

// appendWord appends the ids of one word.
func (m *bpe) appendWord(dst []int32, word string) ([]int32, error) {
	if m.byteLevel {
		word = toByteLevel(word)
	}
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return append(dst, id), nil
		}
	}
	symbols, err := m.symbols(word)
	if err != nil {
		return nil, err
	}
	m.mergeAll(symbols)
	for i := range symbols {
		if symbols[i].id != noID {
			dst = append(dst, symbols[i].id)
		}
	}
	return dst, nil
}

// symbol is a node of a doubly linked list that lies in a slice. A symbol that
// was joined to its left neighbour has noID.
type symbol struct {
	id         int32
	prev, next int32
}

// symbols cuts a word into the ids of its characters; a character that is no
// token becomes its bytes if all of them are tokens, or else the unknown token.
func (m *bpe) symbols(word string) ([]symbol, error) {
	list := make([]symbol, 0, len(word))
	add := func(id int32) {
		n := int32(len(list))
		list = append(list, symbol{id: id, prev: n - 1, next: n + 1})
	}
	lastUnknown := false
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+size]
		i += size
		if id, ok := m.vocab[char]; ok {
			add(id)
			lastUnknown = false
			continue
		}
		if m.hasBytes(char) {
			for j := range len(char) {
				add(m.bytes[char[j]])
			}
			lastUnknown = false
			continue
		}
		if m.unk == noID {
			return nil, fmt.Errorf("no token contains the character %q, and the tokenizer has no unknown token", char)
		}
		if !lastUnknown || !m.fuseUnk {
			add(m.unk)
		}
		lastUnknown = true
	}
	return list, nil
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.bytes[char[i]] == noID {
			return false
		}
	}
	return true
}

// mergeAll joins pairs in the order of their rank, and from left to right
// among equal ranks, until none is left. A heap keeps that O(n log n): with
// SentencePiece models a whole document is one word.
func (m *bpe) mergeAll(symbols []symbol) {
	var queue candidates
	for i := 0; i+1 < len(symbols); i++ {
		if mg, ok := m.merges[[2]int32{symbols[i].id, symbols[i+1].id}]; ok {
			queue = append(queue, candidate{mg, int32(i)})
		}
	}
	heap.Init(&queue)
	push := func(at int32) {
		if at < 0 || int(symbols[at].next) >= len(symbols) {
			return
		}
		if mg, ok := m.merges[[2]int32{symbols[at].id, symbols[symbols[at].next].id}]; ok {
			heap.Push(&queue, candidate{mg, at})
		}
	}
	for len(queue) > 0 {
		top := heap.Pop(&queue).(candidate)
		left := &symbols[top.at]
		if left.id == noID || int(left.next) >= len(symbols) {
			continue
		}
		right := &symbols[left.next]
		// An earlier merge may have changed either side since this was queued.
		if mg, ok := m.merges[[2]int32{left.id, right.id}]; !ok || mg.id != top.id {
			continue
		}
		left.id, right.id = top.id, noID
		left.next = right.next
		if int(left.next) < len(symbols) {
			symbols[left.next].prev = top.at
		}
		push(left.prev)
		push(top.at)
	}
}

// candidate is a possible merge of the symbol at index at with its successor.
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
