package fetch

// Progress shows transfers and builds. It must be safe for concurrent use.
type Progress interface {
	// Start begins a task. total is its size in bytes; 0 means unknown.
	Start(what string, total int64) Meter
}

// Meter is one task of a Progress, used by one goroutine.
type Meter interface {
	// Add reports n more bytes; a negative n takes back bytes that must be transferred again.
	Add(n int64)
	// Done ends the task. err is nil if it succeeded. It is called exactly once.
	Done(err error)
}

// silent is a Progress that shows nothing.
type silent struct{}

func (silent) Start(string, int64) Meter { return silent{} }
func (silent) Add(int64)                 {}
func (silent) Done(error)                {}
