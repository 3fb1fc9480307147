# Makes these the node's only injected faults. Settings: skew, seconds by which the clock is ahead, or null; free, bytes
# that stay free on C:, or null; now, the host's clock in seconds since 1970.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

# What was done to the clock: the seconds, and how the time service was set before
$record = "$WinlabFolder\clock.json"
$fill = "$WinlabFolder\faults.fill"
$near = 60 # seconds: if the clock is further from where it was left, someone else or a power cut has changed it
$slack = 1MB

function Get-Record {
    $text = Get-Text $record
    if (-not $text) { return $null }
    return ConvertFrom-Json -InputObject $text
}

function Write-Record([long]$Skew, [string]$Start, [bool]$Ran) {
    $row = @{ skew = $Skew; start = $Start; ran = $Ran }
    Write-Text $record (ConvertTo-Json -InputObject $row -Compress) | Out-Null
}

# The settings arrive some seconds late. So a clock that is as it was left is moved by the difference
function Set-Clock([long]$Before, [long]$Wanted, [long]$Now) {
    $clock = [DateTime]::UtcNow
    $right = ([DateTime]'1970-01-01').AddSeconds($Now)
    $off = ($clock - $right).TotalSeconds
    if ([Math]::Abs($off - $Wanted) -lt $near -and $Before -eq $Wanted) { return }
    $time = $right.AddSeconds($Wanted)
    if ([Math]::Abs($off - $Before) -lt $near) { $time = $clock.AddSeconds($Wanted - $Before) }
    Set-Date -Date ([DateTime]::SpecifyKind($time, [DateTimeKind]::Utc).ToLocalTime()) | Out-Null
}

# NTFS takes the space of a longer file at once, without writing it. Returns whether something changed
function Set-Fill([long]$Free) {
    New-Folder $WinlabFolder
    $file = [System.IO.File]::Open($fill, [System.IO.FileMode]::OpenOrCreate, [System.IO.FileAccess]::Write)
    try {
        $excess = (New-Object System.IO.DriveInfo 'C').TotalFreeSpace - $Free
        if ([Math]::Abs($excess) -lt $slack) { return $false }
        # the first argument decides the type of both: with a plain 0 the limit would be 2 GB
        $file.SetLength([Math]::Max([long]0, $file.Length + $excess))
    } finally {
        $file.Dispose()
    }
    return $true
}

Invoke-Step {
    $changed = $false
    if ((Test-Path -LiteralPath $fill) -and $null -eq $settings.free) {
        [System.IO.File]::Delete($fill)
        $changed = $true
    }
    $done = Get-Record
    $now = [long]$settings.now
    if ($null -ne $settings.skew) {
        $skew = [long]$settings.skew
        $before = 0
        if ($done) {
            $before = [long]$done.skew
            Write-Record $before "$($done.start)" ([bool]$done.ran)
        } else {
            # recorded before anything is set, so that nothing is forgotten
            $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='W32Time'"
            Write-Record 0 "$($service.StartMode)" ("$($service.State)" -eq 'Running')
            $done = Get-Record
        }
        Set-Service -Name 'W32Time' -StartupType Disabled
        Stop-Running @('W32Time') | Out-Null
        Set-Clock $before $skew $now
        Write-Record $skew "$($done.start)" ([bool]$done.ran)
        $changed = $changed -or $before -ne $skew
    } elseif ($done) {
        Set-Clock ([long]$done.skew) 0 $now
        # CIM says Auto, the cmdlet takes Automatic
        $start = "$($done.start)" -replace '^Auto$', 'Automatic'
        Set-Service -Name 'W32Time' -StartupType $start
        if ($done.ran) { Start-Service -Name 'W32Time' }
        [System.IO.File]::Delete($record)
        $changed = $true
    }
    if ($null -ne $settings.free -and (Set-Fill ([long]$settings.free))) { $changed = $true }
    return @{ changed = [bool]$changed }
}
