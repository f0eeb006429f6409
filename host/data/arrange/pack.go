package arrange

// Packing says how documents are put into rows.
type Packing string

// The ways of packing.
const (
	// FirstFit puts each document into the first row that has room for it, in the order of
	// the documents.
	FirstFit Packing = "first_fit"
	// None gives every document a row of its own.
	None Packing = "none"
)

// layout is which documents stand in which row.
type layout struct {
	documents []uint32 // row after row
	begins    []uint32 // of each row in documents, and the end of the last
}

func (l *layout) rows() int { return len(l.begins) - 1 }

func (l *layout) row(i int) []uint32 { return l.documents[l.begins[i]:l.begins[i+1]] }

// pack lays out documents, in their order, in rows of length tokens. No document is longer.
func (p Packing) pack(documents []uint32, tokens func(document uint32) int, length int) *layout {
	row := make([]uint32, len(documents)) // of each document
	n := uint32(0)
	if p == None {
		for i := range row {
			row[i] = uint32(i)
		}
		n = uint32(len(documents))
	} else {
		free := newSpace(len(documents), length)
		for i, d := range documents {
			row[i] = free.take(tokens(d))
			n = max(n, row[i]+1)
		}
	}
	l := &layout{documents: make([]uint32, len(documents)), begins: make([]uint32, n+1)}
	for _, r := range row {
		l.begins[r+1]++
	}
	for r := range n {
		l.begins[r+1] += l.begins[r]
	}
	next := append([]uint32(nil), l.begins...)
	for i, r := range row {
		l.documents[next[r]] = documents[i]
		next[r]++
	}
	return l
}

// space is the room that is left in each row, as a tree of maxima: it finds the first row
// with enough in a number of steps that grows with the logarithm of the rows.
type space struct {
	leaves int
	room   []int32 // the tree: node i has the children 2i and 2i+1
}

// newSpace is rows that are all empty.
func newSpace(rows, length int) *space {
	s := &space{leaves: 1}
	for s.leaves < rows {
		s.leaves *= 2
	}
	s.room = make([]int32, 2*s.leaves)
	for i := range s.room {
		s.room[i] = int32(length)
	}
	return s
}

// take finds the first row with room for a document and takes it.
func (s *space) take(tokens int) (row uint32) {
	node := 1
	for node < s.leaves {
		node *= 2
		if int(s.room[node]) < tokens {
			node++
		}
	}
	row = uint32(node - s.leaves)
	s.room[node] -= int32(tokens)
	for node /= 2; node > 0; node /= 2 {
		s.room[node] = max(s.room[2*node], s.room[2*node+1])
	}
	return row
}
