package fetch

// Progress shows how far transfers and builds are. It may be called from several goroutines.
type Progress interface {
	// Start begins one piece of work. total is its size in bytes; 0 means unknown.
	Start(what string, total int64) Meter
}

// Meter is one piece of work of a Progress. Only one goroutine uses it.
type Meter interface {
	// Add says that n more bytes are done; a negative n takes back what has to be done again.
	Add(n int64)
	// Done ends the work. err is nil when it succeeded. It is called exactly once.
	Done(err error)
}

// silent is the Progress that shows nothing.
type silent struct{}

func (silent) Start(string, int64) Meter { return silent{} }
func (silent) Add(int64)                 {}
func (silent) Done(error)                {}
