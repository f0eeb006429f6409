package crashfs

import "github.com/cage-qat/cage/internal/vfs"

// file is an open file whose writes are recorded.
type file struct {
	vfs.File
	fs      *FS
	id      int
	appends bool
	at      int64 // of the next write that does not append
}

// Unwrap is for vfs.OSFile.
func (f *file) Unwrap() vfs.File { return f.File }

func (f *file) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	offset := f.at
	if f.appends {
		offset = f.fs.sizes[f.id]
	}
	n, err := f.File.Write(p)
	f.fs.write(f.id, p[:n], offset)
	f.at = offset + int64(n)
	return n, err
}

func (f *file) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.File.WriteAt(p, offset)
	f.fs.write(f.id, p[:n], offset)
	return n, err
}

func (f *file) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.at += int64(n)
	return n, err
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	at, err := f.File.Seek(offset, whence)
	f.at = at
	return at, err
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	if size != f.fs.sizes[f.id] {
		f.fs.sizes[f.id] = size
		f.fs.events = append(f.fs.events, event{kind: truncate, id: f.id, offset: size})
	}
	return nil
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.fs.done(f.File.Sync(), event{kind: syncFile, id: f.id})
}
