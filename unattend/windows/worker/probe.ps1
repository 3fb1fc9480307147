# Checks what all other scripts rely on: complete input, unchanged letters, rights, the version, the clock. Settings:
# text, which is returned; block, whose digest is returned. Changes nothing.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

Invoke-Step {
    $bytes = [System.Text.Encoding]::UTF8.GetBytes("$($settings.block)")
    $digest = [System.Security.Cryptography.SHA256]::Create().ComputeHash($bytes)
    # S-1-16-12288: a token with high integrity, as administrators have it when it is not filtered; 16384: SYSTEM's
    $groups = Invoke-Native 'whoami.exe' @('/groups')
    return @{
        text = "$($settings.text)"
        sha256 = ([System.BitConverter]::ToString($digest) -replace '-', '').ToLowerInvariant()
        elevated = [bool]("$groups" -match 'S-1-16-(12288|16384)')
        language = "$($ExecutionContext.SessionState.LanguageMode)"
        version = "$($PSVersionTable.PSVersion)"
        clock = [DateTimeOffset]::UtcNow.ToUnixTimeMilliseconds()
    }
}
