package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/vfs"

	"github.com/cage-qat/cage/host/data/source"
)

type sourceResult struct {
	source    *sourceFile
	documents []document
	reason    Reason // why the whole file was left out, or isText
	format    source.Format
	compress  source.Compression
	rows      int64
	empty     int64 // rows with nothing but white space
	bad       int64 // rows left out because they hold no text
	firstBad  error
}

type input struct {
	p      *preparation
	source *sourceFile
	found  sourceResult
	spool  *spool // nil while nothing is spooled
	begin  int64  // the size of the spool before this file
}

func (p *preparation) readFile(file *sourceFile) (sourceResult, error) {
	in := &input{p: p, source: file, found: sourceResult{source: file}}
	err := in.read()
	if in.spool != nil {
		if err == nil && in.found.reason != isText {
			err = in.spool.cut(in.begin)
		}
		if err == nil {
			err = in.spool.flush()
		}
		p.spools.put(in.spool)
	}
	if err != nil {
		return in.found, fmt.Errorf("%s: %w", file.path, withoutPath(err))
	}
	return in.found, nil
}

// withoutPath takes the path off an error of the operating system, which the message
// names already.
func withoutPath(err error) error {
	if pathError, ok := errors.AsType[*os.PathError](err); ok && pathError == err {
		return pathError.Err
	}
	return err
}

func (in *input) read() error {
	in.found.format, in.found.compress = in.source.format, in.source.compress
	if in.source.stdin != nil {
		peek, compress, err := standardInput(&progressReader{in.source.stdin, in.p, true})
		if err != nil {
			return err
		}
		in.found.compress = compress
		return in.decode(peek, nil)
	}
	file, err := vfs.OpenRegular(in.source.path)
	if err != nil {
		return err
	}
	defer file.Close()
	return in.decode(&progressReader{file, in.p, false}, file)
}

// standardInput looks at the first bytes of the standard input, which has no name that says how it
// is compressed.
func standardInput(in io.Reader) (*bufio.Reader, source.Compression, error) {
	peek := bufio.NewReader(in)
	begin, _ := peek.Peek(vfs.MaxPointer) // an error comes back when it is read
	if vfs.IsPointer(begin) {
		return nil, source.None, vfs.ErrPointer
	}
	return peek, source.ByContent(begin), nil
}

// decode reads the file by its format. direct is the file itself, if it has a name.
func (in *input) decode(raw io.Reader, direct *os.File) error {
	text, err := source.Decompress(raw, in.found.compress)
	if err != nil {
		return err
	}
	defer text.Close()
	if in.found.compress != source.None {
		direct = nil
	}
	switch in.found.format {
	case source.JSONL:
		return in.rows(source.ReadJSONL(text, in.p.options.Field))
	case source.Parquet:
		return in.parquet(text, direct)
	}
	return in.text(text, direct != nil)
}

// text finds the documents of a plain text; direct: it can be read again where it is.
func (in *input) text(r io.Reader, direct bool) error {
	s := &scanner{file: in.source.number, separator: []byte(in.p.options.Separator)}
	if !direct {
		if err := in.toSpool(); err != nil {
			return err
		}
		s.file, s.base = in.spool.number, in.spool.size
		r = io.TeeReader(r, in.spool)
	}
	chunk := int64(1 << 20)
	if direct { // most files are small
		chunk = min(chunk, max(in.source.size, 1<<12))
	}
	var err error
	in.found.reason, err = s.run(r, int(chunk))
	if in.found.reason != isText {
		return err
	}
	in.found.documents = s.documents
	if len(s.documents) == 0 {
		in.found.reason = Empty
	}
	return err
}

// parquet finds the rows of a Parquet file, which is read from its end.
func (in *input) parquet(r io.Reader, direct *os.File) error {
	if direct != nil {
		stat, err := direct.Stat()
		if err != nil {
			return err
		}
		in.p.advance(0, stat.Size())
		return in.rows(source.ReadParquet(direct, stat.Size(), in.p.options.Field))
	}
	if err := in.toSpool(); err != nil {
		return err
	}
	size, err := io.Copy(in.spool, r)
	if err == nil {
		err = in.spool.flush()
	}
	if err != nil {
		return err
	}
	return in.rows(source.ReadParquet(io.NewSectionReader(in.spool.file, in.begin, size), size, in.p.options.Field))
}

func (in *input) rows(rows iter.Seq2[source.Row, error]) error {
	if err := in.toSpool(); err != nil {
		return err
	}
	for row, err := range rows {
		if err == nil {
			err = in.row(row)
		}
		if err != nil {
			return err
		}
	}
	if in.found.rows == 0 {
		in.found.reason = Empty
	}
	return nil
}

func (in *input) row(row source.Row) error {
	f := &in.found
	f.rows++
	if f.rows&0xfff == 0 && in.p.ctx.Err() != nil {
		return in.p.ctx.Err()
	}
	if row.Err != nil {
		if !in.p.options.SkipBad {
			hint := "--skip-bad leaves out rows without text"
			if row.Err.Field {
				hint = "--field names another field, " + hint
			}
			return fmt.Errorf("%w; %s", row.Err, hint)
		}
		if f.bad++; f.firstBad == nil {
			f.firstBad = fmt.Errorf("%s: %w", in.source.path, row.Err)
		}
		return nil
	}
	if isBlank(row.Text) {
		f.empty++
		return nil
	}
	begin := in.spool.size
	if _, err := in.spool.Write(row.Text); err != nil {
		return err
	}
	f.documents = append(f.documents, newDocument(in.spool.number, begin, in.spool.size))
	return nil
}

// toSpool takes a spool that nobody else writes to, unless there is one.
func (in *input) toSpool() (err error) {
	if in.spool != nil {
		return nil
	}
	in.spool, err = in.p.spools.take()
	if err == nil {
		in.begin = in.spool.size
	}
	return err
}

// progressReader reports what is read, and stops when the preparation does.
type progressReader struct {
	r       io.Reader
	p       *preparation
	unsized bool // the size of what is read was not known before
}

func (r *progressReader) Read(b []byte) (int, error) {
	if err := r.p.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	if r.unsized {
		r.p.expect(int64(n))
	}
	r.p.advance(0, int64(n))
	return n, err
}

// scanner goes through a file in chunks. Documents that are nothing but white
// space are left out.
type scanner struct {
	file      int    // the number of the text file that the documents lie in
	base      int64  // where in that file the text begins
	separator []byte // empty: the file is one document; its line ends are those of Windows, too
	documents []document

	position int64 // of the chunk in the file
	start    int64 // of the current document
	skip     int   // bytes at the front of the chunk that belong to a separator
	visible  bool  // the current document has more than white space
}

func (s *scanner) run(r io.Reader, chunk int) (Reason, error) {
	// What is held back at the end of a chunk: a character, or a separator, may
	// be cut there.
	hold := max(len(s.separator)+bytes.Count(s.separator, []byte("\n"))-1, utf8.UTFMax-1)
	buf := make([]byte, chunk+hold+utf8.UTFMax)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return isText, err
		}
		text := buf[:kept+n]
		if kept == 0 && s.position == 0 { // nothing is held back yet
			s.skip = len(text) - len(bytes.TrimPrefix(text, []byte(source.UTF8Mark)))
			s.start = int64(s.skip)
		}
		cut := len(text)
		if !last {
			cut = runeStart(text, cut-hold)
		}
		switch {
		case bytes.IndexByte(text, 0) >= 0:
			return Binary, nil
		case !utf8.Valid(text[:cut]):
			return InvalidUTF8, nil
		}
		s.split(text, cut)
		s.position += int64(cut)
		if last {
			s.finish(s.position)
			return isText, nil
		}
		kept = copy(buf, text[cut:])
	}
}

// runeStart moves at back to the beginning of a character.
func runeStart(text []byte, at int) int {
	for i := at; i > max(0, at-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return at // this is not UTF-8
}

// split ends a document at every separator that begins before cut.
func (s *scanner) split(text []byte, cut int) {
	from := s.skip
	s.skip = 0
	for len(s.separator) > 0 && from < cut {
		begin, end := s.find(text, from)
		if begin < 0 || begin >= cut {
			break
		}
		s.look(text[from:begin])
		s.finish(s.position + int64(begin))
		from = end
		s.start = s.position + int64(from)
	}
	if from < cut {
		s.look(text[from:cut])
	} else {
		s.skip = from - cut
	}
}

// find returns where the next separator in text begins and ends, from a place on; a begin below 0:
// there is none.
func (s *scanner) find(text []byte, from int) (begin, end int) {
	line := bytes.IndexByte(s.separator, '\n')
	anchor := s.separator // or what stands before its first line end, or else that line end
	if line >= 0 {
		anchor = anchor[:max(line, 1)]
	}
	for at := from; ; at = begin + 1 {
		i := bytes.Index(text[at:], anchor)
		if i < 0 {
			return -1, -1
		}
		begin = at + i
		if end = begin + separated(text[begin:], s.separator); end > begin {
			if line == 0 && begin > from && text[begin-1] == '\r' {
				begin--
			}
			return begin, end
		}
	}
}

// separated is the length of the separator that text begins with, in which a line may also end with
// \r\n; 0: there is none.
func separated(text, separator []byte) int {
	n := 0
	for _, b := range separator {
		if b == '\n' && bytes.HasPrefix(text[n:], []byte("\r\n")) {
			n++
		}
		if n == len(text) || text[n] != b {
			return 0
		}
		n++
	}
	return n
}

func (s *scanner) look(text []byte) { s.visible = s.visible || !isBlank(text) }

func isBlank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

func (s *scanner) finish(end int64) {
	if s.visible {
		s.documents = append(s.documents, newDocument(s.file, s.base+s.start, s.base+end))
	}
	s.visible = false
}
