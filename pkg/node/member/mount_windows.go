package member

import "errors"

// isMount is asked on machines only, which run Linux. The command reads members' reports in this package.
func isMount(dir string) (bool, error) { return false, errors.ErrUnsupported }
