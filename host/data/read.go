package data

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/internal/regular"
)

// sourceResult is what a source file gave.
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

// input is a source file that is being read.
type input struct {
	p      *preparation
	source *sourceFile
	found  sourceResult
	spool  *spool // nil while nothing is spooled
	begin  int64  // the size of the spool before this file
}

// readFile finds the documents of a file.
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
	file, err := in.open()
	if err != nil {
		return err
	}
	defer file.Close()
	in.found.format, in.found.compress = in.source.format, in.source.compress
	raw := &progressReader{file, in.p, in.source.size < 0}
	if in.source.stdin != nil {
		peek := bufio.NewReader(raw)
		begin, _ := peek.Peek(4)
		in.found.compress = source.ByContent(begin)
		return in.decode(peek, nil)
	}
	return in.decode(raw, file)
}

// open opens the file, or takes the standard input.
func (in *input) open() (io.ReadCloser, error) {
	if in.source.stdin != nil {
		return io.NopCloser(in.source.stdin), nil
	}
	return regular.Open(in.source.path)
}

// decode reads the file by its format. file is the file itself, if it has a name.
func (in *input) decode(raw io.Reader, file io.ReadCloser) error {
	plain := in.found.compress == source.None
	text, err := source.Decompress(raw, in.found.compress)
	if err != nil {
		return err
	}
	defer text.Close()
	direct, _ := file.(*os.File)
	if !plain {
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

// rows takes the text of every row.
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
			return fmt.Errorf("%w; --field names another field, --skip-bad leaves out rows without text", row.Err)
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
