# The bucket of etcd's backups, where the document leaves it to the stack. Terraform does not destroy it while there is anything in it.
# To destroy the rest, take it out of the state first: terraform state rm aws_s3_bucket.backups
locals {
  backups = {
    for b in local.spec.backups : "etcd" => merge(b, {
      bucket = replace(replace(b.bucket, "$${AWS::Region}", data.aws_region.here.id), "$${AWS::AccountId}", data.aws_caller_identity.here.account_id)
    })
  }
}

resource "aws_s3_bucket" "backups" {
  for_each = local.backups
  bucket   = each.value.bucket
  tags     = merge(local.tags, { Name = "${local.spec.cluster}-etcd-backups" })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "backups" {
  for_each = local.backups
  bucket   = aws_s3_bucket.backups[each.key].id
  rule {
    bucket_key_enabled = true
    apply_server_side_encryption_by_default {
      sse_algorithm     = each.value.key == "" ? "AES256" : "aws:kms"
      kms_master_key_id = each.value.key == "" ? null : each.value.key
    }
  }
}

resource "aws_s3_bucket_public_access_block" "backups" {
  for_each                = local.backups
  bucket                  = aws_s3_bucket.backups[each.key].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "backups" {
  for_each = local.backups
  bucket   = aws_s3_bucket.backups[each.key].id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "backups" {
  for_each   = local.backups
  bucket     = aws_s3_bucket.backups[each.key].id
  depends_on = [aws_s3_bucket_versioning.backups]
  rule {
    id     = "keep"
    status = "Enabled"
    filter {}
    expiration {
      days = each.value.keep
    }
    noncurrent_version_expiration {
      noncurrent_days = each.value.deleted
    }
  }
  rule {
    id     = "forget"
    status = "Enabled"
    filter {}
    expiration {
      expired_object_delete_marker = true
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

# Nobody comes without TLS, or writes without saying that nothing is to be replaced.
resource "aws_s3_bucket_policy" "backups" {
  for_each = local.backups
  bucket   = aws_s3_bucket.backups[each.key].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "OnlyWithTLS"
        Effect    = "Deny"
        Principal = { AWS = "*" }
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.backups[each.key].arn, "${aws_s3_bucket.backups[each.key].arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "ReplaceNothing"
        Effect    = "Deny"
        Principal = { AWS = "*" }
        Action    = "s3:PutObject"
        Resource  = "${aws_s3_bucket.backups[each.key].arn}/*"
        Condition = { Null = { "s3:if-none-match" = "true" } }
      },
    ]
  })
}
