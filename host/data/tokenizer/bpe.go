package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// bpe is the byte-pair model: it turns one word into ids by joining, again and
// again, the adjacent pair that was learned first (Sennrich et al. 2016).
type bpe struct {
	vocab        map[string]int32
	merges       map[uint64]merge
	bytes        [256]int32 // ids of <0x00> … <0xFF>, or noID
	unk          int32      // or noID
	fuseUnk      bool
	ignoreMerges bool
	byteLevel    bool   // words arrive as text and are looked up in the byte-level alphabet
	wordMark     string // where it follows another character, words can be cut; "": nowhere
}

type merge struct {
	rank int32 // the smaller, the earlier learned
	id   int32 // what the pair becomes
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
			return nil, fmt.Errorf("model.merges[%d]: %q + %q: a part or the result is not in the vocabulary", rank, pair[0], pair[1])
		}
		// Of two entries for one pair the later wins, as in the original library.
		m.merges[pairKey(left, right)] = merge{rank: int32(rank), id: joined}
	}
	if m.marksWords() {
		m.wordMark = spaceMark
	}
	return m, nil
}

// appendWord appends the ids of one word.
func (m *bpe) appendWord(dst []int32, word string, g *wordMerger) ([]int32, error) {
	if m.byteLevel {
		word = toByteLevel(word)
	}
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return append(dst, id), nil
		}
	}
	if err := m.symbols(word, g); err != nil {
		return dst, err
	}
	return m.merge(dst, g), nil
}

// symbols cuts a word into the ids of its characters; a character that is no
// token becomes its bytes if all of them are tokens, or else the unknown token.
func (m *bpe) symbols(word string, g *wordMerger) error {
	g.ids = g.ids[:0]
	lastUnknown := false
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+size]
		i += size
		if id, ok := m.vocab[char]; ok {
			g.ids = append(g.ids, id)
			lastUnknown = false
			continue
		}
		if m.hasBytes(char) {
			for j := range len(char) {
				g.ids = append(g.ids, m.bytes[char[j]])
			}
			lastUnknown = false
			continue
		}
		if m.unk == noID {
			return fmt.Errorf("no token contains the character %q, and the tokenizer has no unknown token", char)
		}
		if !lastUnknown || !m.fuseUnk {
			g.ids = append(g.ids, m.unk)
		}
		lastUnknown = true
	}
	return nil
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.bytes[char[i]] == noID {
			return false
		}
	}
	return true
}
