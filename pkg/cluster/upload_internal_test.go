package cluster

import "testing"

func TestObjectURL(t *testing.T) {
	for _, tt := range []struct{ region, bucket, want string }{
		{"eu-west-1", "templates", "https://templates.s3.eu-west-1.amazonaws.com/hardtack/a"},
		{"eu-west-1", "my.templates", "https://s3.eu-west-1.amazonaws.com/my.templates/hardtack/a"},
		{"cn-north-1", "templates", "https://templates.s3.cn-north-1.amazonaws.com.cn/hardtack/a"},
		{"us-gov-west-1", "templates", "https://templates.s3.us-gov-west-1.amazonaws.com/hardtack/a"},
	} {
		if got := objectURL(tt.region, tt.bucket, "hardtack/a"); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
